/** Organization: who may call, and with which credit (configuration.md "Organization" is made from it). */
import { z } from "zod";
import { limitBounds } from "../../dataplane/config/schema.ts";
import { allowCIDRs, allowPorts } from "./egress.ts";
import { identity } from "./identity.ts";
import { DEFAULT_PROJECT, limitFields, modelPatterns, rateLimit } from "./limits.ts";
import { moment } from "./moment.ts";
import {
  byteQuantity,
  entryName,
  field,
  httpUrl,
  listMap,
  organizationId,
  secretKeyRef,
  set,
  withRules,
} from "./fields.ts";

/** Values that the compiler takes for absent fields. */
export const storageDefaults = { maxBytes: "10Gi", maxFiles: 100_000 } as const;
const holdDefault = "Worst";
export const thresholdDefaults = [50, 80, 100] as const;
/**
 * No control characters but white space, as YAML's block texts end with a line break. Postgres keeps no NUL:
 * https://www.postgresql.org/docs/current/datatype-character.html
 */
const WITHOUT_CONTROLS = /^[\P{Cc}\s]*$/u;

const grant = withRules(
  z.strictObject({
    name: field(entryName(), "Applied once under this name.", { example: "2026-11-top-up" }),
    amount: field(
      withRules(
        z
          .string()
          .max(18)
          .regex(
            /^-?[0-9]{1,10}(\.[0-9]{1,6})?$/,
            'must be credits such as "100" or "-2.5", in quotes, with at most six decimals',
          ),
        [
          {
            cel: null,
            message: `must lie between -${limitBounds.credits} and ${limitBounds.credits}`,
            fault: (text) => (Math.abs(Number(text)) <= limitBounds.credits ? null : []),
          },
        ],
      ),
      "Credits, at most six decimals; a negative amount corrects.",
      { example: "100000" },
    ),
  }),
  [],
  [
    {
      cel: "self.amount == oldSelf.amount",
      message: "a grant is applied once by its name and cannot be changed; add one under a new name",
      fieldPath: ".amount",
    },
  ],
);

const key = {
  name: field(entryName(), "Name of the key, unique in its list.", { example: "ci" }),
  secretKeyRef: field(
    secretKeyRef(),
    "Where the key's value is. A value that is there is imported; if it is absent and this key was never published, one is generated and written there.",
  ),
};

/** Makes the field for how much of the output is held while a request runs (rule 9.7). */
const hold = () =>
  field(
    z.enum(["Worst", "Typical"]),
    "What a running request holds: Worst its whole output limit; Typical what answers of its model usually take, so that a small balance serves many at once and may be overrun by what runs.",
    { default: holdDefault },
  ).optional();

const notification = withRules(
  z.strictObject({
    url: field(httpUrl(), "Where messages are posted to, without a query.", {
      example: "https://hooks.example.com/credit",
    }),
    secretRef: field(
      secretKeyRef(),
      "The secret that messages are signed with (Standard Webhooks): whsec_ and 24 to 64 bytes in base64.",
    ),
    thresholds: field(
      set(z.int().min(1).max(100), 10).min(1),
      "Per cent of a limit, or of the balance since the last grant, at which one message is sent.",
      { default: thresholdDefaults },
    ).optional(),
    allowCIDRs: allowCIDRs(),
    allowPorts: allowPorts(),
  }),
  [
    {
      cel: null,
      message: "the port is neither 80 nor 443: name it in allowPorts",
      fault: ({ url, allowPorts: ports = [] }) => {
        const port = URL.parse(url)?.port;
        return port === undefined || port === "" || [80, 443, ...ports].includes(Number(port))
          ? null
          : ["url"];
      },
    },
  ],
);

/** Returns the index of the first entry whose project is not listed; -1: there is none. */
function unlisted(
  entries: readonly { readonly project?: string | undefined }[] | undefined,
  projects: readonly { readonly name: string }[] | undefined,
): number {
  const known = new Set([DEFAULT_PROJECT, ...(projects ?? []).map((project) => project.name)]);
  return (entries ?? []).findIndex((entry) => !known.has(entry.project ?? DEFAULT_PROJECT));
}

/** In CEL: whether the project of an entry `k` is not listed. */
const UNLISTED =
  "has(k.project) && k.project != 'default' && !(has(self.projects) && self.projects.exists(p, p.name == k.project))";
const namingUnlisted = (entries: string) =>
  `'the project "' + ${entries}.map(k, ${UNLISTED}, k.project)[0] + '" is not in projects'`;
const unlistedMessage = (project: string | undefined) => `the project "${project}" is not in projects`;

export const organizationSpec = withRules(
  z.strictObject({
    displayName: field(
      z.string().min(1).max(256).regex(WITHOUT_CONTROLS, "must have no control characters"),
      "Name shown to people. Default: metadata.name.",
      { example: "Acme" },
    ).optional(),
    id: field(
      organizationId(),
      "Id under which credit, keys, files and batches are kept. Immutable. Default: org_<namespace>_<name>.",
      { example: "org_acme" },
    ).optional(),
    suspended: field(z.boolean(), "true: every key answers 401; data and balance are kept.", {
      default: false,
    }).optional(),
    credits: field(
      z.strictObject({
        grants: field(
          listMap(grant, "name", 0, 500),
          "Credit given, applied exactly once by name; editing or removing a grant changes nothing.",
        ).optional(),
      }),
      "Prepaid credit.",
    ).optional(),
    models: field(
      z.strictObject({
        allow: modelPatterns(),
      }),
      "Which models the organization may use.",
    ).optional(),
    toolCallsPerMinute: field(
      z.int().min(1).max(1_000_000),
      "Server-tool calls a minute, batches included. Default: the limit of the calling route's ToolPolicy.",
      { example: 60 },
    ).optional(),
    rateLimits: field(
      z.strictObject({
        requestsPerMinute: rateLimit("Requests a minute.", 600),
        tokensPerMinute: rateLimit("Tokens a minute.", 200000),
        concurrentRequests: rateLimit("Requests at the same time.", 200),
      }),
      "Limits beyond which requests answer 429; no limit when absent. Requests in batches count towards none of them.",
    ).optional(),
    storage: field(
      z.strictObject({
        maxBytes: byteQuantity("Bytes.", storageDefaults.maxBytes).optional(),
        maxFiles: field(z.int().min(0).max(1_000_000_000), "Files.", {
          default: storageDefaults.maxFiles,
        }).optional(),
      }),
      "What the organization may keep: files, requests of batches and results; beyond it uploads and new batches answer 400 storage_limit_reached.",
    ).optional(),
    hold: hold(),
    keyDefaults: field(
      z.strictObject({
        hold: hold(),
        limits: limitFields("Each holds for keys that do not name it themselves."),
      }),
      "For inference keys, declared here or made through the admin API.",
    ).optional(),
    projects: field(
      listMap(
        z.strictObject({
          name: field(entryName(), "Name of the project.", { example: "research" }),
          limits: limitFields("What all keys of the project may at most, together."),
        }),
        "name",
        0,
        100,
      ),
      'Projects that keys belong to. The project "default" is always there. One that is left out is archived: keys made in it answer 401 until it is listed again, and its batches go on.',
      { default: [{ name: DEFAULT_PROJECT }] },
    ).optional(),
    notifications: field(
      listMap(notification, "url", 0, 10),
      "Who is told when a key, a project or the organization has spent so much: one signed message for each threshold, scope and window.",
    ).optional(),
    apiKeys: field(
      listMap(
        z.strictObject({
          name: key.name,
          project: field(entryName(), "The project that the key belongs to.", {
            default: DEFAULT_PROJECT,
          }).optional(),
          expiresAt: moment("From then on the key answers 401. With seconds and an offset.", {
            example: "2027-12-31T00:00:00Z",
          }).optional(),
          limits: limitFields("What the key may at most, within what its project and the organization may."),
          secretKeyRef: key.secretKeyRef,
        }),
        "name",
        0,
        200,
      ),
      "Inference keys (sk-svc-…). A key removed from the list is revoked.",
    ).optional(),
    adminKeys: field(
      listMap(z.strictObject(key), "name", 0, 50),
      "Keys of the admin API (sk-adm-svc-…). A key removed from the list is revoked.",
    ).optional(),
    identity: field(
      identity,
      "People and programs with tokens (JWT) of an OpenID provider, accepted where keys are.",
    ).optional(),
  }),
  [
    {
      cel: `!has(self.apiKeys) || self.apiKeys.all(k, !(${UNLISTED}))`,
      message: "apiKeys name a project that is not in projects",
      naming: {
        cel: namingUnlisted("self.apiKeys"),
        of: (spec) => unlistedMessage(spec.apiKeys?.[unlisted(spec.apiKeys, spec.projects)]?.project),
      },
      fieldPath: ".apiKeys",
      fault: (spec) => {
        const index = unlisted(spec.apiKeys, spec.projects);
        return index < 0 ? null : ["apiKeys", index, "project"];
      },
    },
    {
      cel: `!has(self.identity) || self.identity.rules.all(k, !(${UNLISTED}))`,
      message: "identity.rules name a project that is not in projects",
      naming: {
        cel: namingUnlisted("self.identity.rules"),
        of: (spec) =>
          unlistedMessage(spec.identity?.rules[unlisted(spec.identity.rules, spec.projects)]?.project),
      },
      fieldPath: ".identity.rules",
      fault: (spec) => {
        const index = unlisted(spec.identity?.rules, spec.projects);
        return index < 0 ? null : ["identity", "rules", index, "project"];
      },
    },
  ],
  [
    {
      cel: "has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",
      message: "id is immutable: it can be neither changed, nor added later, nor removed",
    },
  ],
);
export type LimitsSpec = NonNullable<NonNullable<z.output<typeof organizationSpec>["keyDefaults"]>["limits"]>;
export type OrganizationSpec = z.output<typeof organizationSpec>;
