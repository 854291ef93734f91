/** Parts of the schemas of the OpenAPI document, and its errors (service.md). */
import { z } from "zod";

/** Schemas with a name: the document's components. */
export const components = z.registry<{ readonly id: string }>();
export const named = <Schema extends z.ZodType>(id: string, schema: Schema): Schema => {
  components.add(schema, { id });
  return schema;
};

export const isoMoment = z.string().meta({ format: "date-time" });
export const unixMoment = z.int().describe("Unix seconds");
export const tokens = z.int().min(0);
export const credits = z.string().describe("Decimal number of credits");
/** One page of a list; every SDK finds its own fields in it. */
export const list = <Item extends z.ZodType>(item: Item) =>
  z.looseObject({
    object: z.literal("list"),
    data: z.array(item),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
    next_page: z.string().nullable(),
  });

export const messagesError = named(
  "MessagesError",
  z.looseObject({
    type: z.literal("error"),
    error: z.looseObject({ type: z.string(), message: z.string() }),
    request_id: z.string(),
  }),
);
export const openAIError = named(
  "OpenAIError",
  z.looseObject({
    error: z.looseObject({
      message: z.string(),
      type: z.string(),
      param: z.string().nullable(),
      code: z.string().nullable(),
    }),
  }),
);
