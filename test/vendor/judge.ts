/** Holds what Gapura says to the vendors' own types. */
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { framesOf } from "../grammar/sse.ts";
import { exceptions } from "./exceptions.ts";
import { seenEvent } from "./seen.ts";
import { vendorSchemas, type Schema } from "./schemas.ts";
import type { VendorType } from "./vendor-type.ts";

/** What is wrong with a value, save for what `exceptions.ts` allows; empty when nothing is. */
export type Judge = (type: VendorType, value: unknown) => string[];

/** What is wrong with the events of a stream's bytes. */
export function streamFaults(judge: Judge, dialect: Dialect, stream: string): string[] {
  return framesOf(stream).flatMap(({ data }) => {
    if (data === "" || data === "[DONE]") return [];
    return seenEvent(dialect, JSON.parse(data) as object).flatMap(({ type, value }) => judge(type, value));
  });
}

const ajv = new Ajv({ strict: false, allErrors: true, discriminator: true, validateFormats: false });
/** By all judges: a type takes a tenth of a second. */
const compiled = new Map<VendorType, ValidateFunction>();

/**
 * @param used told the number of each exception that was needed.
 * @param allowed all exceptions, or only those that are the vendors' own, for other gateways.
 */
export async function vendorJudge(used?: Set<number>, allowed: "all" | "vendors" = "all"): Promise<Judge> {
  const schemas = await vendorSchemas();
  return (type, value) => {
    let validate = compiled.get(type);
    if (validate === undefined) {
      validate = ajv.compile(withTags(schemas[type]));
      compiled.set(type, validate);
    }
    if (validate(value)) return [];
    // Whether a union's part fits is told by what is wrong inside of it.
    const inner = (validate.errors ?? []).filter(({ keyword }) => keyword !== "if");
    const lines = inner.map((error) => line(type, error));
    return [...new Set(lines)].filter((text) => {
      const index = exceptions.findIndex(
        ({ fault, vendors }) => (allowed === "all" || vendors === true) && fault.test(text),
      );
      if (index >= 0) used?.add(index);
      return index < 0;
    });
  };
}

const line = (type: VendorType, { instancePath, message, params }: ErrorObject): string =>
  `${type}${instancePath.replaceAll(/\/\d+(?=\/|$)/g, "[]")} ${message} ${JSON.stringify(params)}`;

interface Branch {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<
    Record<string, { readonly const?: string; readonly enum?: readonly string[] }>
  >;
  readonly required?: readonly string[];
}

/**
 * A union says by itself which of its members a value has to fit: by the value's JSON type, and among objects by their
 * `type`. The validator then looks at one member only, and names what is wrong there rather than that none of fifty fits.
 */
function withTags(schema: Schema): Schema {
  const definitions = (schema["definitions"] ?? {}) as Record<string, Branch>;
  const resolved = (branch: Branch): Branch =>
    branch.$ref === undefined
      ? branch
      : resolved(definitions[decodeURIComponent(branch.$ref.replace("#/definitions/", ""))] ?? {});
  const tagsOf = (branch: Branch): readonly string[] => {
    const whole = resolved(branch);
    const tag = whole.properties?.["type"];
    if (whole.required?.includes("type") !== true || tag === undefined) return [];
    return tag.const === undefined ? (tag.enum ?? []) : [tag.const];
  };
  const objects = (branches: readonly Branch[]): Schema => {
    const tags = branches.map(tagsOf);
    const distinct = tags.every((own) => own.length > 0) && new Set(tags.flat()).size === tags.flat().length;
    return distinct && branches.length > 1
      ? { type: "object", required: ["type"], discriminator: { propertyName: "type" }, oneOf: branches }
      : anyOf(branches);
  };
  const anyOf = (branches: readonly Branch[]): Schema =>
    branches.length === 1 ? (branches[0] as Schema) : { anyOf: branches };
  const union = (branches: readonly Branch[]): Schema => {
    const types = branches.map((branch) => resolved(branch).type);
    if (types.some((type) => typeof type !== "string")) return anyOf(branches);
    const [first, ...others] = [...new Set(types as string[])];
    const own = branches.filter((_, index) => types[index] === first);
    const whole = first === "object" ? objects(own) : anyOf(own);
    if (others.length === 0) return whole;
    const rest = branches.filter((_, index) => types[index] !== first);
    return { if: { type: first }, then: whole, else: union(rest) };
  };
  const visit = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(visit);
    if (value === null || typeof value !== "object") return value;
    const { anyOf: branches, ...rest } = Object.fromEntries(
      Object.entries(value).map(([key, inner]) => [key, visit(inner)]),
    ) as { anyOf?: Branch[] };
    return branches === undefined ? rest : { ...rest, ...union(branches) };
  };
  return visit(schema) as Schema;
}
