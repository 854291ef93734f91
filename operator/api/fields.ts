/**
 * Building blocks of the four kinds' schemas. One declaration serves four readers: zod judges a manifest with it,
 * `crd.ts` makes the CRD of it, `docs.ts` the configuration page, and the compiler takes its types.
 */
import { z } from "zod";

export const GROUP = "gapura.dev";
export const VERSION = "v1alpha1";
export const API_VERSION = `${GROUP}/${VERSION}`;

/** Where a fault lies inside a value. */
export type FieldPath = readonly (string | number)[];

/** Documentation of a field in addition to its description. */
export interface FieldNotes {
  /** The value that the compiler takes when the field is absent; never a default in the schema. */
  readonly default?: unknown;
  readonly example?: unknown;
  /** Keys that go into the CRD as they are (`x-kubernetes-…`). */
  readonly kubernetes?: Readonly<Record<string, unknown>>;
}

/** Keys under which the notes travel in a schema's metadata; `crd.ts` and `docs.ts` take them out again. */
export const DEFAULT_NOTE = "x-gapura-default";
export const EXAMPLE_NOTE = "x-gapura-example";
const VALIDATIONS = "x-kubernetes-validations";

/** Attaches documentation; to be called before `.optional()`. */
export function field<S extends z.ZodType>(schema: S, description: string, notes: FieldNotes = {}): S {
  return schema.meta({
    ...schema.meta(),
    description,
    ...(notes.default === undefined ? {} : { [DEFAULT_NOTE]: notes.default }),
    ...(notes.example === undefined ? {} : { [EXAMPLE_NOTE]: notes.example }),
    ...notes.kubernetes,
  });
}

/** A rule across or inside fields, written twice: for the API server (CEL) and for the compiler. */
export interface Rule<T> {
  /** null: only the compiler can judge it. */
  readonly cel: string | null;
  readonly message: string;
  /** A message that names what is wrong, in place of `message`: for the API server (CEL) and for the compiler. */
  readonly naming?: { readonly cel?: string; readonly of: (value: T) => string };
  /** CEL's `fieldPath`, where the fault always lies at one field. */
  readonly fieldPath?: string;
  /** The path of the first fault, relative to the value; null when the rule holds. */
  readonly fault: (value: T) => FieldPath | null;
}

/** A rule over the old and the new value; only the API server knows both. */
export interface Transition {
  readonly cel: string;
  readonly message: string;
  readonly fieldPath?: string;
}

/** Adds rules to a schema, for the compiler and, in CEL, for the API server; `transitions` are for the latter alone. */
export function withRules<S extends z.ZodType>(
  schema: S,
  rules: readonly Rule<z.output<S>>[],
  transitions: readonly Transition[] = [],
): S {
  const judged = schema.superRefine((value, context) => {
    for (const rule of rules) {
      const path = rule.fault(value);
      if (path === null) continue;
      const message = rule.naming?.of(value) ?? rule.message;
      context.addIssue({ code: "custom", path: [...path], message });
    }
  });
  const cel = [...rules, ...transitions].flatMap((rule) =>
    rule.cel === null
      ? []
      : [
          {
            rule: rule.cel,
            message: rule.message,
            ...("naming" in rule && rule.naming?.cel !== undefined
              ? { messageExpression: rule.naming.cel }
              : {}),
            ...(rule.fieldPath === undefined ? {} : { fieldPath: rule.fieldPath }),
          },
        ],
  );
  return judged.meta({ ...schema.meta(), ...(cel.length === 0 ? {} : { [VALIDATIONS]: cel }) });
}

/** A list of objects that merges by one key under server-side apply; the key is unique. */
export function listMap<S extends z.ZodType>(item: S, key: string, min: number, max: number) {
  return withRules(z.array(item).min(min).max(max), [
    {
      cel: null,
      message: `each ${key} may stand only once`,
      fault: (items) => {
        const seen = new Set<unknown>();
        for (const [index, entry] of items.entries()) {
          const value = (entry as Readonly<Record<string, unknown>>)[key];
          if (seen.has(value)) return [index, key];
          seen.add(value);
        }
        return null;
      },
    },
  ]).meta({ "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key] });
}

/** A list of scalars in which each stands once. */
export function set<S extends z.ZodType>(item: S, max: number) {
  return withRules(z.array(item).max(max), [
    {
      cel: null,
      message: "may stand only once",
      fault: (items) => {
        const index = items.findIndex((entry, at) => items.indexOf(entry) !== at);
        return index < 0 ? null : [index];
      },
    },
  ]).meta({ "x-kubernetes-list-type": "set" });
}

const DURATION = /^([0-9]{1,5}(h|m|s|ms)){1,4}$/;
const MILLISECONDS: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

/** Returns the milliseconds of `1m30s`, `500ms`; the text must match DURATION. */
export function milliseconds(text: string): number {
  let sum = 0;
  for (const [, amount, unit] of text.matchAll(/([0-9]+)(ms|h|m|s)/g))
    sum += Number(amount) * (MILLISECONDS[unit ?? ""] ?? 0);
  return sum;
}

const DAY_MS = 24 * 3_600_000;

/** A duration of at most 24 hours; above zero unless `zero` says otherwise. */
export function duration(description: string, fallback: string | undefined, zero = false) {
  return field(
    withRules(z.string().max(32).regex(DURATION, "must be a duration such as 1m30s or 500ms"), [
      {
        cel: `duration(self) ${zero ? ">=" : ">"} duration('0s') && duration(self) <= duration('24h')`,
        message: `must be ${zero ? "" : "above zero and "}at most 24h`,
        fault: (text) => {
          const value = milliseconds(text);
          return value > DAY_MS || (value === 0 && !zero) ? [] : null;
        },
      },
    ]),
    description,
    fallback === undefined ? {} : { default: fallback },
  );
}

const UNITS: Readonly<Record<string, number>> = {
  "": 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
};
const QUANTITY = /^([0-9]{1,15})(Ki|Mi|Gi|Ti|k|M|G|T)?$/;

/** Returns the bytes of `10Gi`, `500M`, `1024`; the text must be of that form. */
export function bytesOf(text: string): number {
  const [, amount = "0", unit = ""] = QUANTITY.exec(text) ?? [];
  return Number(amount) * (UNITS[unit] ?? 1);
}

/** A number of bytes as Kubernetes writes it. */
export function byteQuantity(description: string, fallback: string) {
  return field(
    withRules(
      z.string().max(20).regex(QUANTITY, "must be a number of bytes such as 1048576, 256Ki or 10Gi"),
      [
        {
          cel: null,
          message: "must be at most 8191Ti",
          fault: (text) => (Number.isSafeInteger(bytesOf(text)) ? null : []),
        },
      ],
    ),
    description,
    { default: fallback },
  );
}

/** Message for a malformed price or factor. */
export const AMOUNT = 'must be a decimal such as "0.25", in quotes and not negative';

/** A price: a decimal that is not negative, as text, so that no float ever rounds it. */
export function price(description: string, notes: FieldNotes = {}) {
  return field(
    z
      .string()
      .max(25)
      .regex(/^[0-9]{1,12}(\.[0-9]{1,12})?$/, AMOUNT),
    description,
    notes,
  );
}

/** The name of a Secret or of another object: a DNS-1123 subdomain. */
export const NAME = {
  form: /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/,
  maxLength: 253,
  message:
    "must be a name of lower-case letters, digits, - and ., each part between dots with a letter or digit first and last",
} as const;
/** Characters of a namespace's name, a DNS-1123 label. */
export const NAMESPACE_FORM = "lower-case letters, digits and -";
export const isNamespaceName = (text: string): boolean =>
  text.length <= 63 && /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(text);
export const objectName = () => z.string().min(1).max(NAME.maxLength).regex(NAME.form, NAME.message);
export const entryName = () =>
  z
    .string()
    .min(1)
    .max(63)
    .regex(
      /^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$/,
      "must be letters, digits, -, _ and ., with a letter or digit first and last",
    );

/** A public model id, such as `llama3.1:8b` or `meta/llama-3`. */
const MODEL_ID = /^[A-Za-z0-9@][-._:/@+~A-Za-z0-9]*$/;
export const modelId = () =>
  z
    .string()
    .min(1)
    .max(128)
    .regex(
      MODEL_ID,
      "must be a model id: letters, digits and - . _ : / @ + ~, with a letter, digit or @ first",
    );

/** An organization's id. One made of namespace and name may be longer than one that is given. */
export const organizationId = (maxLength = 128) =>
  z
    .string()
    .min(1)
    .max(maxLength)
    .regex(
      /^[A-Za-z0-9][-_.A-Za-z0-9]*$/,
      "must be letters, digits, -, _ and ., with a letter or digit first",
    );
export const MADE_ORGANIZATION_ID_LENGTH = "org_".length + 63 + 1 + 253;

/** Refuses a well-formed address that cannot be called: no pattern can judge ports and IPv6. */
export const callable: Rule<string> = {
  cel: null,
  message: "must be an address that can be called",
  fault: (text) => (URL.canParse(text) ? null : []),
};

/** An address without query, fragment or user. */
export const httpUrl = () =>
  withRules(
    z
      .string()
      .max(2048)
      .regex(
        /^https?:\/\/[-._~%:[\]A-Za-z0-9]+(\/[^?#\s]*)?$/,
        "must be an http:// or https:// address without user, query and fragment",
      ),
    [callable],
  );

/** A data key of a Secret, as the API server takes it. */
export const dataKey = () =>
  z
    .string()
    .min(1)
    .max(253)
    .regex(/^\.?[-_A-Za-z0-9][-._A-Za-z0-9]*$/, "must be a key of a Secret: letters, digits, -, _ and .");

export const secretKeyRef = () =>
  field(
    z.strictObject({
      name: field(objectName(), "The Secret, in the same namespace."),
      key: field(dataKey(), "The data key inside the Secret."),
    }),
    "The Secret that holds the value. A trailing newline is trimmed.",
  );

export const objectRef = (description: string) =>
  field(
    z.strictObject({ name: field(objectName(), "Name of the object, in the same namespace.") }),
    description,
  );

export const HEADER_NAME = /^[-!#$%&'*+.^_`|~0-9A-Za-z]+$/;
