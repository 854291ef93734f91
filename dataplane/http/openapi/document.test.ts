import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, test } from "vitest";
import { openApiDocument } from "./document.ts";
import { operations } from "./operations.ts";
import { apiPage } from "./page.ts";

const document = JSON.parse(JSON.stringify(openApiDocument())) as {
  readonly openapi: string;
  readonly paths: Record<
    string,
    Record<
      string,
      {
        readonly operationId: string;
        readonly parameters?: readonly {
          readonly name: string;
          readonly in: string;
          readonly schema: object;
        }[];
        readonly responses: Record<string, object>;
      }
    >
  >;
  readonly components: { readonly schemas: Record<string, object> };
};
const all = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
);

describe("the OpenAPI document", () => {
  test("has every operation once, under an id of its own", () => {
    expect(document.openapi).toBe("3.1.0");
    expect(all).toHaveLength(Object.keys(operations).length);
    expect(new Set(all.map(({ operation }) => operation.operationId)).size).toBe(all.length);
  });

  test("declares each parameter of a path, and no parameter twice", () => {
    for (const { path, operation } of all) {
      const parameters = operation.parameters ?? [];
      const inPath = parameters.filter((parameter) => parameter.in === "path").map(({ name }) => name);
      expect(inPath).toEqual(Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => name));
      expect(new Set(parameters.map(({ name }) => name)).size).toBe(parameters.length);
    }
  });

  test("holds only schemas that are valid JSON Schema 2020-12, and references that lead somewhere", () => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    ajv.addSchema({ $id: "https://gapura.test/document", ...document });
    for (const id of Object.keys(document.components.schemas)) {
      expect(() =>
        ajv.compile({ $ref: `https://gapura.test/document#/components/schemas/${id}` }),
      ).not.toThrow();
    }
    for (const { operation } of all) {
      for (const { schema } of operation.parameters ?? []) expect(() => ajv.compile(schema)).not.toThrow();
    }
    const used = Array.from(
      JSON.stringify(document).matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g),
      ([, id]) => id,
    );
    for (const id of used) expect(document.components.schemas).toHaveProperty([String(id)]);
    for (const id of Object.keys(document.components.schemas)) expect(used).toContain(id);
  });

  test("needs no key to be read and says for everything else how errors look", () => {
    for (const { path, operation } of all) {
      expect([path, Object.keys(operation.responses)]).toEqual([
        path,
        path.startsWith("/v1/") ? ["200", "default"] : ["200"],
      ]);
    }
  });

  test("the page of the ops port lists every operation", () => {
    const page = apiPage();
    for (const { path } of all) expect(page).toContain(path);
  });
});
