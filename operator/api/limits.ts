/** Limits of keys, projects and people (rule 9.1). */
import { z } from "zod";
import { limitBounds, MODEL_PATTERN } from "../../dataplane/config/schema.ts";
import { field, set, withRules } from "./fields.ts";

/** There is always a project of this name. */
export const DEFAULT_PROJECT = "default";

export const rateLimit = (description: string, example: number) =>
  field(z.int().min(1).max(limitBounds.count), description, { example }).optional();

export const modelPatterns = () =>
  field(
    set(
      z.string().min(1).max(limitBounds.modelCharacters).regex(MODEL_PATTERN.form, MODEL_PATTERN.message),
      limitBounds.models,
    ),
    "Model ids, each with at most one trailing star; an empty list allows none.",
    { default: ["*"] },
  ).optional();

/** Makes the field for the limits of a key, a project or a person. `whose`: its description. */
export const limitFields = (whose: string) =>
  field(
    z.strictObject({
      credits: field(
        z.strictObject({
          amount: field(
            withRules(
              z
                .string()
                .max(17)
                .regex(
                  /^[0-9]{1,10}(\.[0-9]{1,6})?$/,
                  'must be credits such as "100" or "2.5", in quotes, with at most six decimals',
                ),
              [
                {
                  cel: null,
                  message: `must be at most ${limitBounds.credits}`,
                  fault: (text) => (Number(text) <= limitBounds.credits ? null : []),
                },
              ],
            ),
            "Credits, at most six decimals.",
            { example: "500" },
          ),
          per: field(
            z.enum(["Day", "Week", "Month", "Total"]),
            "How often it begins anew, by UTC: each day, each Monday, each first of a month, or never.",
            { example: "Month" },
          ),
        }),
        "What may be spent; beyond it requests answer 402.",
      ).optional(),
      models: field(
        z.strictObject({ allow: modelPatterns() }),
        "Which of the organization's models may be used; others are unknown.",
      ).optional(),
      requestsPerMinute: rateLimit("Requests a minute; beyond it they answer 429.", 60),
      tokensPerMinute: rateLimit("Tokens a minute; beyond it requests answer 429.", 100000),
      concurrentRequests: rateLimit("Requests at the same time; beyond it they answer 429.", 20),
    }),
    whose,
  ).optional();
