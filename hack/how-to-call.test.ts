/** `npm start` prints only requests that the key in them may make. */
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, expect, it } from "vitest";
import type { OrganizationEntry, Route } from "../dataplane/config/schema.ts";
import {
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleUpstream,
  sha256,
} from "../test/fakes/sample-snapshot.ts";
import { howToCall } from "./how-to-call.ts";

const NOW = Date.UTC(2026, 10, 28);
const data = fs.mkdtempSync(join(tmpdir(), "gapura-how-to-call-"));
afterAll(() => fs.rmSync(data, { recursive: true }));

type Key = OrganizationEntry["apiKeys"][number];

/** A generated key, in the data folder. */
function key(name: string, overrides: Partial<Key> = {}): Key {
  const value = `sk-svc-${name.padEnd(40, "x")}`;
  const file = join(data, "secrets", "default", name, "key");
  fs.mkdirSync(dirname(file), { recursive: true });
  fs.writeFileSync(file, value);
  return { name, sha256: sha256(value), hint: "sk-svc-", project: "default", ...overrides };
}

const routes = [
  sampleRoute("first", { upstreams: [sampleUpstream()] }),
  sampleRoute("second", { upstreams: [sampleUpstream({ dialect: "chat" })] }),
  sampleRoute("third", { upstreams: [sampleUpstream({ dialect: "responses" })] }),
];

/** The folder of the key, and the models, of the lines to try; or the one line that stands there instead. */
function told(
  organization: Partial<OrganizationEntry>,
  declared: readonly Route[] = routes,
  others: OrganizationEntry[] = [],
) {
  const organizations = [sampleOrganization("org_a", organization), ...others];
  const snapshot = sampleSnapshot(sampleRouting(1, { routes: [...declared], organizations }));
  const lines = howToCall("http://127.0.0.1:8080", snapshot, data, NOW);
  const curls = lines.filter((line) => line.startsWith("curl "));
  if (curls.length === 0) return lines.at(-1);
  const keys = new Set(curls.map((line) => /secrets\/default\/(.*?)\/key/.exec(line)?.[1] ?? "none"));
  const models = curls.map((line) => /"model":"(.*?)"/.exec(line)?.[1]);
  return [...keys, ...models].join(" ");
}

it("takes a model of each dialect where there is one", () => {
  expect(told({ apiKeys: [key("all")] })).toBe("all first second third");
  expect(told({ apiKeys: [key("all")] }, routes.slice(1))).toBe("all second second third");
});

it("takes models that the organization, the key and its project may use", () => {
  expect(told({ allowedModels: ["th*"], apiKeys: [key("all")] })).toBe("all third third third");
  expect(told({ apiKeys: [key("own", { limits: { models: ["second"] } })] })).toBe(
    "own second second second",
  );
  expect(told({ keyDefaults: { models: ["first"] }, apiKeys: [key("all")] })).toBe("all first first first");
  expect(told({ projectLimits: { default: { models: ["third"] } }, apiKeys: [key("all")] })).toBe(
    "all third third third",
  );
});

it("passes over keys that have expired or may use nothing", () => {
  expect(
    told({
      apiKeys: [
        key("old", { expiresAt: NOW }),
        key("none", { limits: { models: [] } }),
        key("all", { expiresAt: NOW + 1 }),
      ],
    }),
  ).toBe("all first second third");
  expect(told({ apiKeys: [key("none", { limits: { models: [] } })] })).toBe(
    "no model is declared yet that one of these keys may use",
  );
});

it("prefers an organization with credit, and takes none that is suspended", () => {
  const rich = sampleOrganization("org_b", { apiKeys: [key("rich")] });
  expect(told({ grants: [], apiKeys: [key("poor")] }, routes, [rich])).toBe("rich first second third");
  expect(told({ suspended: true, apiKeys: [key("shut")] }, routes, [rich])).toBe("rich first second third");
});

it("names a variable where no key is in the folder, and says where there is no model or no organization", () => {
  expect(told({ apiKeys: [{ ...key("all"), sha256: sha256("declared") }] })).toBe("none first second third");
  expect(told({ apiKeys: [key("all")] }, [])).toBe("no model is declared yet");
  const nobody = sampleSnapshot(sampleRouting(1, { routes, organizations: [] }));
  expect(howToCall("http://127.0.0.1:8080", nobody, data, NOW)).toEqual([
    "no organization is served yet, so there is no key to ask with",
  ]);
});
