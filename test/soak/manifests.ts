/** What the operator of a soak compiles: written as JSON, which is YAML too. */
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export const keys = {
  inference: `sk-svc-${"s".repeat(40)}`,
  admin: `sk-adm-svc-${"s".repeat(40)}`,
  /** Of an organization that has little credit. */
  poor: `sk-svc-${"p".repeat(40)}`,
} as const;
const ORGANIZATION = "org_soak";
const POOR_ORGANIZATION = "org_poor";
/** By the dialect of their upstreams. */
export const models = { messages: "m-messages", chat: "m-chat", responses: "m-responses" } as const;
/** The model whose price is edited, and its prices of an output token, in micro-credits. */
export const PRICED_MODEL = "m-priced";
export const editedPrices: readonly [bigint, bigint] = [2n, 4n];
/** Of all other models; an input token costs one. */
export const OUTPUT_MICROS = 2n;
export const SEARCH_MICROS = 320_000n;
export const PROVIDER_KEY = "provider-secret-of-the-soak";

const dialects = { messages: "Messages", chat: "ChatCompletions", responses: "Responses" } as const;
type Json = Readonly<Record<string, unknown>>;

export interface Addresses {
  /** In the order in which they are asked. */
  readonly upstreams: readonly string[];
  readonly engine: string;
  readonly pagesPort: number;
}

/** What edits change. */
export interface Edited {
  /** Grants of the organization with little credit so far, in credits. */
  readonly grants: number;
  readonly priced: 0 | 1;
  /** A route that comes and goes; null: there is none. */
  readonly extra: string | null;
  /** A file that is no YAML lies beside the others. */
  readonly broken: boolean;
}

const resource = (kind: string, name: string, spec: Json) => ({
  apiVersion: "gapura.dev/v1alpha1",
  kind,
  metadata: { name },
  spec,
});
const secret = (name: string, key: string, value: string) => ({
  apiVersion: "v1",
  kind: "Secret",
  metadata: { name },
  stringData: { [key]: value },
});

function route(model: string, dialect: keyof typeof dialects, { upstreams }: Addresses): Json {
  return resource("ModelRoute", model, {
    limits: { contextTokens: 20_000_000, maxOutputTokens: 10_000_000 },
    timeouts: { connect: "2s", firstByte: "8s", streamIdle: "5s", request: "30s" },
    upstreams: upstreams.map((baseURL, index) => ({
      name: `u${index}`,
      dialect: dialects[dialect],
      baseURL,
      priority: index,
      credentials: { secretKeyRef: { name: "upstream", key: "api-key" } },
    })),
  });
}

function files(at: Addresses, edited: Edited): Record<string, readonly Json[] | string | null> {
  const keyRef = (name: string) => ({ secretKeyRef: { name, key: "key" } });
  const priceOf = (model: string, output: bigint) => ({ model, input: "1", output: String(output) });
  return {
    "routes.yaml": [
      route(models.messages, "messages", at),
      route(models.chat, "chat", at),
      route(models.responses, "responses", at),
      route(PRICED_MODEL, "messages", at),
    ],
    "prices.yaml": [
      resource("PriceTable", "default", {
        unit: "Credit",
        models: [
          ...Object.values(models).map((model) => priceOf(model, OUTPUT_MICROS)),
          priceOf(PRICED_MODEL, editedPrices[edited.priced]),
          ...(edited.extra === null ? [] : [priceOf(edited.extra, OUTPUT_MICROS)]),
        ],
      }),
    ],
    "tools.yaml": [
      resource("ToolPolicy", "default", {
        webSearch: { engine: { type: "SearXNG", baseURL: at.engine }, timeout: "4s" },
        webFetch: {
          timeout: "5s",
          cacheTTL: "0s",
          egress: { allowCIDRs: ["127.0.0.1/32"], allowPorts: [at.pagesPort] },
        },
        limits: { callsPerMinute: 60_000 },
      }),
    ],
    "organizations.yaml": [
      resource("Organization", "soak", {
        id: ORGANIZATION,
        credits: { grants: [{ name: "first", amount: "1000000000" }] },
        apiKeys: [{ name: "ci", ...keyRef("soak-ci") }],
        adminKeys: [{ name: "root", ...keyRef("soak-admin") }],
      }),
      resource("Organization", "poor", {
        id: POOR_ORGANIZATION,
        credits: {
          grants: Array.from({ length: edited.grants }, (_, n) => ({ name: `top-up-${n}`, amount: "1" })),
        },
        apiKeys: [{ name: "ci", ...keyRef("poor-ci") }],
      }),
      secret("soak-ci", "key", keys.inference),
      secret("soak-admin", "key", keys.admin),
      secret("poor-ci", "key", keys.poor),
      secret("upstream", "api-key", PROVIDER_KEY),
    ],
    "extra.yaml": edited.extra === null ? null : [route(edited.extra, "messages", at)],
    "broken.yaml": edited.broken ? "kind: [ModelRoute\n  spec: }" : null,
  };
}

/** Writes what is to be there, each file as an editor does, and takes away what is not. */
export function writeSoakManifests(folder: string, at: Addresses, edited: Edited): void {
  mkdirSync(folder, { recursive: true });
  for (const [name, content] of Object.entries(files(at, edited))) {
    const file = join(folder, name);
    if (content === null) {
      rmSync(file, { force: true });
      continue;
    }
    const text =
      typeof content === "string"
        ? content
        : content.map((one) => JSON.stringify(one, null, 1)).join("\n---\n");
    writeFileSync(`${file}.swp`, text);
    renameSync(`${file}.swp`, file);
  }
}
