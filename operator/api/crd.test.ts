import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, test } from "vitest";
import { customResourceDefinition } from "./crd.ts";
import { KINDS } from "./kinds.ts";

const golden = resolve(import.meta.dirname, "../../test/golden/compile/every-field/expected.json");

interface Expected {
  readonly input: { readonly statuses: Readonly<Record<string, Readonly<Record<string, unknown>>>> };
}
interface Definition {
  readonly spec: {
    readonly versions: readonly {
      readonly schema: {
        readonly openAPIV3Schema: {
          readonly properties: {
            readonly status: { readonly properties: Readonly<Record<string, unknown>> };
          };
        };
      };
    }[];
  };
}

/** Conditions, which the golden file writes beside the facts. */
const isCondition = (name: string): boolean => /^[A-Z]/.test(name);

test.for(KINDS)(
  "`kubectl explain` tells of a %s's status what the operator writes there, and no more",
  (kind) => {
    const { input } = JSON.parse(readFileSync(golden, "utf8")) as Expected;
    const [status = {}] = Object.entries(input.statuses).flatMap(([name, one]) =>
      name.startsWith(`${kind} `) ? [one] : [],
    );
    const { spec } = customResourceDefinition(kind) as unknown as Definition;
    const properties = spec.versions[0]?.schema.openAPIV3Schema.properties.status.properties ?? {};
    const written = ["conditions", ...Object.keys(status).filter((name) => !isCondition(name))];
    expect(Object.keys(properties).sort()).toEqual(written.sort());
  },
);
