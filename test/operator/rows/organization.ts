import { ofKind, times } from "./row.ts";

const key = (name: string, more: object = {}) => ({
  name,
  secretKeyRef: { name: "keys", key: name },
  ...more,
});
const identity = (more: object = {}, rule: object = {}) => ({
  identity: {
    issuer: "https://login.example.com",
    audiences: ["gapura"],
    rules: [{ claims: { groups: "ml" }, role: "Member", ...rule }],
    ...more,
  },
});
const credits = (amount: string, per: string) => ({ amount, per });
const limitedKey = (limits: object) => ({ name: "ci", secretKeyRef: { name: "s", key: "k" }, limits });
const notification = (more: object = {}) => ({
  url: "https://hooks.example.com/credit",
  secretRef: { name: "hooks", key: "secret" },
  ...more,
});

export const organizationRows = ofKind("Organization", [
  { title: "nothing at all", spec: {}, verdict: "good" },
  {
    title: "100 grants and 50 keys in 20 projects",
    spec: {
      credits: { grants: times(100, (index) => ({ name: `g-${index}`, amount: "1.5" })) },
      projects: times(20, (index) => ({ name: `p-${index}` })),
      apiKeys: times(50, (index) => key(`k-${index}`, { project: `p-${index % 20}` })),
    },
    verdict: "good",
  },
  {
    title: "the default project without naming it",
    spec: { projects: [{ name: "lab" }], apiKeys: [key("a"), key("b", { project: "default" })] },
    verdict: "good",
  },
  {
    title: "a correction",
    spec: { credits: { grants: [{ name: "c", amount: "-12.000001" }] } },
    verdict: "good",
  },
  {
    title: "models with a trailing star",
    spec: { models: { allow: ["*", "gpt-*", "claude"] } },
    verdict: "good",
  },
  {
    title: "a star in mid-pattern",
    spec: { models: { allow: ["gpt-*-mini"] } },
    verdict: "refused",
    path: "spec.models.allow[0]",
  },
  {
    title: "two stars",
    spec: { models: { allow: ["gpt-**"] } },
    verdict: "refused",
    path: "spec.models.allow[0]",
  },
  {
    title: "a model with a control character, which Postgres does not keep",
    spec: { keyDefaults: { limits: { models: { allow: ["gpt-\0"] } } } },
    verdict: "refused",
    path: "spec.keyDefaults.limits.models.allow[0]",
  },
  {
    title: "an unknown project",
    spec: { projects: [{ name: "other" }], apiKeys: [key("b"), key("a", { project: "lab" })] },
    verdict: "refused",
    path: "spec.apiKeys[1].project",
    says: /the project "lab" is not in projects/,
  },
  {
    title: "a grant twice",
    spec: {
      credits: {
        grants: [
          { name: "g", amount: "1" },
          { name: "g", amount: "2" },
        ],
      },
    },
    verdict: "refused",
    path: "spec.credits.grants[1].name",
    says: /Duplicate value/,
  },
  {
    title: "a grant finer than a micro-credit",
    spec: { credits: { grants: [{ name: "g", amount: "0.0000001" }] } },
    verdict: "refused",
    path: "spec.credits.grants[0].amount",
  },
  {
    title: "a grant beyond any balance",
    spec: { credits: { grants: [{ name: "g", amount: "9000000001" }] } },
    verdict: "condition",
    path: "spec.credits.grants[0].amount",
  },
  {
    title: "a key twice",
    spec: { apiKeys: [key("a"), key("a")] },
    verdict: "refused",
    path: "spec.apiKeys[1].name",
    says: /Duplicate value/,
  },
  {
    title: "a key without Secret",
    spec: { apiKeys: [{ name: "a" }] },
    verdict: "refused",
    path: "spec.apiKeys[0].secretKeyRef",
    says: /Required value/,
  },
  {
    title: "a storage in words",
    spec: { storage: { maxBytes: "10 gigabytes" } },
    verdict: "refused",
    path: "spec.storage.maxBytes",
  },
  {
    title: "a storage without a unit as a number",
    spec: { storage: { maxBytes: 1024 } },
    verdict: "refused",
    path: "spec.storage.maxBytes",
  },
  {
    title: "a rate limit of nothing",
    spec: { rateLimits: { requestsPerMinute: 0 } },
    verdict: "refused",
    path: "spec.rateLimits.requestsPerMinute",
  },
  { title: "suspended in words", spec: { suspended: "yes" }, verdict: "refused", path: "spec.suspended" },
  { title: "an id with a slash", spec: { id: "org/acme" }, verdict: "refused", path: "spec.id" },
  {
    title: "a NUL in the name",
    spec: { displayName: "a\u0000b" },
    verdict: "refused",
    path: "spec.displayName",
  },
  {
    title: "an escape sequence in the name",
    spec: { displayName: "\u001b[31mAcme" },
    verdict: "refused",
    path: "spec.displayName",
  },
  {
    title: "limits of keys and projects, an end, a hold",
    spec: {
      hold: "Worst",
      keyDefaults: { hold: "Typical", limits: { credits: credits("0.5", "Day") } },
      projects: [{ name: "lab", limits: { credits: credits("9000000000", "Total"), concurrentRequests: 1 } }],
      apiKeys: [limitedKey({ credits: credits("500", "Month"), models: { allow: ["a-*"] } })],
    },
    verdict: "good",
  },
  {
    title: "200 keys with all limits",
    spec: {
      apiKeys: times(200, (index) => ({
        ...limitedKey({
          credits: credits("500", "Month"),
          models: { allow: ["a-*", "b"] },
          requestsPerMinute: 1,
          tokensPerMinute: 1,
          concurrentRequests: 1,
        }),
        name: `key-${index}`,
      })),
    },
    verdict: "good",
  },
  {
    title: "a window that there is not",
    spec: { apiKeys: [limitedKey({ credits: credits("5", "Year") })] },
    verdict: "refused",
    path: "spec.apiKeys[0].limits.credits.per",
    says: /Unsupported value: "Year": supported values: "Day", "Week", "Month", "Total"/,
  },
  {
    title: "a limit below nothing",
    spec: { projects: [{ name: "lab", limits: { credits: credits("-5", "Day") } }] },
    verdict: "refused",
    path: "spec.projects[0].limits.credits.amount",
    says: /spec.projects\[0\].limits.credits.amount/,
  },
  {
    title: "a limit of credit without a window",
    spec: { keyDefaults: { limits: { credits: { amount: "5" } } } },
    verdict: "refused",
    path: "spec.keyDefaults.limits.credits.per",
    says: /spec.keyDefaults.limits.credits.per: Required value/,
  },
  {
    title: "a limit above all credit",
    spec: { keyDefaults: { limits: { credits: credits("9999999999", "Day") } } },
    verdict: "condition",
    path: "spec.keyDefaults.limits.credits.amount",
    says: /at most 9000000000/,
  },
  {
    title: "no request a minute",
    spec: { apiKeys: [limitedKey({ requestsPerMinute: 0 })] },
    verdict: "refused",
    path: "spec.apiKeys[0].limits.requestsPerMinute",
    says: /spec.apiKeys\[0\].limits.requestsPerMinute/,
  },
  {
    title: "a limit that is spelled wrongly",
    spec: { apiKeys: [limitedKey({ requestPerMinute: 5 })] },
    verdict: "refused",
    path: "spec.apiKeys[0].limits.requestPerMinute",
    says: /unknown field "spec.apiKeys\[0\].limits.requestPerMinute"/,
  },
  {
    title: "an end that is no moment",
    spec: { apiKeys: [{ ...limitedKey({}), expiresAt: "tomorrow" }] },
    verdict: "refused",
    path: "spec.apiKeys[0].expiresAt",
    says: /spec.apiKeys\[0\].expiresAt/,
  },
  {
    title: "a hold that there is not",
    spec: { hold: "Best" },
    verdict: "refused",
    path: "spec.hold",
    says: /spec.hold: Unsupported value: "Best"/,
  },
  {
    title: "ten receivers, with 64 networks and ports each",
    spec: {
      notifications: times(10, (index) =>
        notification({
          url: `https://hooks-${index}.example.com/credit`,
          thresholds: times(10, (at) => 10 * at + 10),
          allowCIDRs: times(64, (at) => `10.${at}.0.0/16`),
          allowPorts: times(64, (at) => 1_000 + at),
        }),
      ),
    },
    verdict: "good",
  },
  {
    title: "a receiver that speaks no HTTP",
    spec: { notifications: [notification({ url: "ftp://hooks.example.com/credit" })] },
    verdict: "refused",
    path: "spec.notifications[0].url",
    says: /spec.notifications\[0\].url/,
  },
  {
    title: "a receiver at another port than is allowed",
    spec: { notifications: [notification({ url: "https://hooks.example.com:9443/credit" })] },
    verdict: "condition",
    path: "spec.notifications[0].url",
    says: /name it in allowPorts/,
  },
  {
    title: "a receiver beside cloud metadata",
    spec: { notifications: [notification({ allowCIDRs: ["169.254.0.0/16"] })] },
    verdict: "condition",
    path: "spec.notifications[0].allowCIDRs[0]",
    says: /link-local/,
  },
  {
    title: "a threshold beyond all",
    spec: { notifications: [notification({ thresholds: [50, 101] })] },
    verdict: "refused",
    path: "spec.notifications[0].thresholds[1]",
    says: /spec.notifications\[0\].thresholds\[1\]/,
  },
  {
    title: "a receiver of notifications that cannot be called",
    spec: { notifications: [notification({ url: "https://hooks.example.com:99999/credit" })] },
    verdict: "condition",
    path: "spec.notifications[0].url",
  },
  { title: "tokens of an issuer", spec: identity(), verdict: "good" },
  {
    title: "an issuer that cannot be called",
    spec: identity({ issuer: "https://login.example.com:99999" }),
    verdict: "condition",
    path: "spec.identity.issuer",
  },
  {
    title: "keys of an issuer that cannot be called for",
    spec: identity({ jwksURL: "https://login.example.com:99999/keys" }),
    verdict: "condition",
    path: "spec.identity.jwksURL",
  },
  {
    title: "an origin that no browser can call",
    spec: identity({ console: { clientID: "console", origins: ["https://login.example.com:99999"] } }),
    verdict: "condition",
    path: "spec.identity.console.origins[0]",
  },
  {
    title: "100 rules about 16 claims each, some of them in Unicode and with dots",
    spec: identity({
      rules: times(100, (index) => ({
        claims: Object.fromEntries(times(16, (at) => [`größe.${at}`, `日本-${index}`])),
        role: "Viewer",
      })),
    }),
    verdict: "good",
  },
  {
    title: "a rule for every token",
    spec: identity({ rules: [{ role: "Member" }, { claims: {}, role: "Admin" }] }),
    verdict: "good",
  },
  {
    title: "an issuer without TLS",
    spec: identity({ issuer: "http://login.example.com" }),
    verdict: "refused",
    path: "spec.identity.issuer",
  },
  {
    title: "keys without TLS",
    spec: identity({ jwksURL: "http://login.example.com/keys" }),
    verdict: "refused",
    path: "spec.identity.jwksURL",
  },
  {
    title: "tokens for anybody",
    spec: identity({ audiences: [] }),
    verdict: "refused",
    path: "spec.identity.audiences",
  },
  {
    title: "tokens without rules",
    spec: identity({ rules: [] }),
    verdict: "refused",
    path: "spec.identity.rules",
  },
  {
    title: "a role that is none",
    spec: identity({}, { role: "Owner" }),
    verdict: "refused",
    path: "spec.identity.rules[0].role",
    says: /Unsupported value/,
  },
  {
    title: "a viewer's project",
    spec: identity({}, { role: "Viewer", project: "default" }),
    verdict: "refused",
    path: "spec.identity.rules[0].project",
    says: /only the role Member has a project and limits/,
  },
  {
    title: "an admin's limits",
    spec: identity({}, { role: "Admin", limits: { requestsPerMinute: 1 } }),
    verdict: "refused",
    path: "spec.identity.rules[0].limits",
    says: /only the role Member has a project and limits/,
  },
  {
    title: "a rule with an unknown project",
    spec: { projects: [{ name: "lab" }], ...identity({}, { project: "other" }) },
    verdict: "refused",
    path: "spec.identity.rules[0].project",
    says: /spec.identity.rules: .*the project "other" is not in projects/,
  },
  {
    title: "a claim that is no text",
    spec: identity({}, { claims: { email_verified: true } }),
    verdict: "refused",
    path: "spec.identity.rules[0].claims.email_verified",
  },
  {
    title: "17 claims in one rule",
    spec: identity({}, { claims: Object.fromEntries(times(17, (at) => [`c${at}`, "x"])) }),
    verdict: "refused",
    path: "spec.identity.rules[0].claims",
    says: /must have at most 16 items/,
  },
  {
    title: "an issuer among cloud metadata",
    spec: identity({ allowCIDRs: ["169.254.0.0/16"] }),
    verdict: "condition",
    path: "spec.identity.allowCIDRs[0]",
  },
  { title: "a name with a line break at its end", spec: { displayName: "Größe 🦩\n" }, verdict: "good" },
]);
