import { expect, test } from "vitest";
import { declaredObject } from "../../test/fakes/declared.ts";
import { compile } from "./compile.ts";
import type { Tenancy } from "./tenancy.ts";

const tenancy: Tenancy = {
  mode: "Namespaced",
  platformNamespaces: new Set(["platform"]),
  quotas: { objects: 100, bytes: 8 * 1024 },
};
/** A route whose entry has some 12 KB, all of one model. */
const large = (number: number) =>
  declaredObject(
    "ModelRoute",
    "evil",
    `r${number}`,
    {
      model: "m",
      limits: { contextTokens: 1000, maxOutputTokens: 100 },
      upstreams: [
        {
          name: "one",
          dialect: "Messages",
          baseURL: "https://a.example",
          headers: { "x-a": "a".repeat(4000), "x-b": "b".repeat(4000), "x-c": "c".repeat(4000) },
        },
      ],
    },
    number,
  );

test("a name that passes on from one object to the next, as none of them fits, costs few rounds of everything", () => {
  const objects = [
    declaredObject(
      "Organization",
      "platform",
      "acme",
      { apiKeys: [{ name: "k", secretKeyRef: { name: "keys", key: "k" } }] },
      1,
    ),
    declaredObject(
      "PriceTable",
      "evil",
      "default",
      { unit: "Credit", models: [{ model: "m", input: "1", output: "1" }] },
      1,
    ),
    ...Array.from({ length: 90 }, (_, index) => large(index + 2)),
  ];
  let rounds = 0;
  const secrets = new Map([["platform/keys", { k: `sk-svc-${"a".repeat(40)}` }]]);
  // Whatever is compiled looks this key up.
  secrets.get = function (key) {
    rounds += 1;
    return Map.prototype.get.call(this, key) as { k: string } | undefined;
  };
  const { routing, verdicts } = compile({ objects, secrets, published: null, tenancy });
  expect(routing.routes).toEqual([]);
  expect(routing.organizations.map(({ apiKeys }) => apiKeys.length)).toEqual([1]);
  const refused = verdicts.filter(({ object }) => object.kind === "ModelRoute");
  expect(refused.map(({ accepted }) => accepted[0]?.reason)).toEqual(refused.map(() => "NotPermitted"));
  expect(rounds).toBeLessThanOrEqual(12);
});

test("what is said of objects beyond the number is the same however many there are, so that one more writes no other's status", () => {
  const said = (count: number) => {
    const objects = Array.from({ length: count }, (_, index) =>
      declaredObject("ToolPolicy", "evil", `t${index}`, { webFetch: {} }, index),
    );
    const { verdicts } = compile({ objects, secrets: new Map(), published: null, tenancy });
    const last = verdicts.find(({ object }) => object.name === "t100");
    return last?.accepted.map(({ reason, message }) => `${reason}: ${message}`);
  };
  expect(said(101)).toEqual([
    expect.stringMatching(/^NotPermitted: namespace "evil" may have 100 objects \(quotas.objects\)/),
  ]);
  expect(said(150)).toEqual(said(101));
});
