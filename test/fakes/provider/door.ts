/**
 * The service's door before two real OpenID providers: its real HTTP server, verification, and keys read over TLS through the URL
 * guard. Behind it nothing but routes that say who came. Two organizations share the first provider; the second one has the same
 * people and a single key.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync } from "node:crypto";
import { CompactSign, type CompactJWSHeaderParameters } from "jose";
import type { IdentityEntry } from "../../../dataplane/config/schema.ts";
import { TokenPeople } from "../../../dataplane/identity/people.ts";
import { guardedFetchJson } from "../../../dataplane/identity/tokens/fetch-json.ts";
import type { SigningKey } from "../issuer.ts";
import { sampleOrganization, sampleRouting, sampleSnapshot, sampleSource } from "../sample-snapshot.ts";
import { SnapshotDirectory } from "../snapshot-directory.ts";
import { startTestServer, type TestServer } from "../test-server.ts";
import { startProvider, type Minting, type RunningProvider } from "./provider.ts";
import { callerRoutes } from "../caller-routes.ts";

const makers = {
  rsa: () => generateKeyPairSync("rsa", { modulusLength: 2048 }),
  ec: () => generateKeyPairSync("ec", { namedCurve: "P-256" }),
  p384: () => generateKeyPairSync("ec", { namedCurve: "P-384" }),
  ed: () => generateKeyPairSync("ed25519"),
} as const;

/** A key of each algorithm that is accepted, and of two that are not; their ids begin with what they are. */
function newKeys() {
  turn += 1;
  const key = (kind: keyof typeof makers, name: string, alg: string) => ({
    ...makers[kind]().privateKey.export({ format: "jwk" }),
    kid: `${name}-${turn}`,
    alg,
    use: "sig",
  });
  return [
    key("ec", "ec", "ES256"),
    key("rsa", "rsa", "RS256"),
    key("rsa", "ps", "PS256"),
    key("rsa", "long", "RS512"),
    key("ed", "ed", "EdDSA"),
    key("p384", "p384", "ES384"),
  ];
}
let turn = 0;

export const INFER = "POST /v1/chat/completions";
export const READ = "GET /v1/organization/credits";
export const CHANGE = "POST /v1/organization/projects";

/** How a token is refused in OpenAI style. */
export const refusal = (words: string) => ({
  message: `invalid x-api-key: ${words}.`,
  type: "invalid_request_error",
  param: null,
  code: "invalid_api_key",
});

/** `org_a` and `org_b` of the shared provider, `org_off`, which is suspended, and `org_single` of the other. */
function organizationsOf(shared: RunningProvider, single: RunningProvider) {
  const member = { role: "member", project: "default" } as const;
  const identity = (of: RunningProvider, more: Partial<IdentityEntry> = {}): IdentityEntry => ({
    issuer: of.issuer,
    audiences: [of.audience],
    jwksUrl: null,
    allowCidrs: ["127.0.0.1/32"],
    allowPorts: [],
    rules: [
      { claims: { groups: "ml" }, ...member },
      { claims: { "realm_access.roles": "reader", email_verified: "true" }, role: "viewer" },
      { claims: { "https://claims.test/größe": "日本" }, role: "admin" },
      { claims: { level: "3" }, role: "admin" },
    ],
    ...more,
  });
  const source = (namespace: string) => ({ ...sampleSource("Organization", "org"), namespace });
  const beta = identity(shared, {
    audiences: ["urn:beta"],
    rules: [{ claims: { team: "b" }, ...member }],
  });
  const off = identity(shared, { audiences: ["urn:off"], rules: [{ claims: {}, ...member }] });
  return [
    sampleOrganization("org_b", { source: source("b"), identity: beta }),
    sampleOrganization("org_a", { source: source("a"), identity: identity(shared) }),
    sampleOrganization("org_off", { source: source("c"), suspended: true, identity: off }),
    sampleOrganization("org_single", { source: source("d"), identity: identity(single) }),
  ];
}

export class Door {
  readonly shared: RunningProvider;
  readonly single: RunningProvider;
  readonly server: TestServer;
  readonly people: TokenPeople;
  readonly #clocks: { ahead: number; later: number };

  private constructor(parts: Pick<Door, "shared" | "single" | "server" | "people">, clocks: Door["clocks"]) {
    this.shared = parts.shared;
    this.single = parts.single;
    this.server = parts.server;
    this.people = parts.people;
    this.#clocks = clocks;
  }

  static async open(): Promise<Door> {
    const clients = ["ada", "bob"];
    const [shared, single] = await Promise.all([startProvider(clients, [], newKeys), startProvider(clients)]);
    const organizations = organizationsOf(shared, single);
    const snapshot = sampleSnapshot(sampleRouting(1, { organizations }));
    const clocks = { ahead: 0, later: 0 };
    const people = new TokenPeople({
      snapshot: () => snapshot,
      directory: new SnapshotDirectory(() => snapshot),
      // Both authorities have the same name.
      fetchJson: async (url, opened) => {
        const { ca } = url.startsWith(single.issuer) ? single : shared;
        return await guardedFetchJson({ resolve: async () => [] }, ca)(url, opened);
      },
      clock: { now: () => Date.now() + clocks.ahead },
      ages: { now: () => performance.now() + clocks.later },
    });
    const server = await startTestServer([callerRoutes], { snapshot: () => snapshot, services: { people } });
    return new Door({ shared, single, server, people }, clocks);
  }

  /** Milliseconds: how far its clock is ahead of the providers', and how much longer ago it read their keys. */
  get clocks() {
    return this.#clocks;
  }

  async ask(route: string, token: string, headers: Readonly<Record<string, string>> = {}) {
    const [method = "", path = ""] = route.split(" ");
    const answer = await this.server.fetch(path, {
      method,
      headers: { authorization: `Bearer ${token}`, ...headers },
    });
    const body = (await answer.json()) as Record<string, unknown>;
    return { status: answer.status, headers: answer.headers, body };
  }

  /** A token that a provider mints, of group `ml` unless it is told otherwise. */
  async mint(
    claims: Readonly<Record<string, unknown>> = {},
    more: Omit<Minting, "claims"> & { readonly of?: RunningProvider; readonly client?: string } = {},
  ): Promise<string> {
    const { of = this.shared, client = "ada", ...minting } = more;
    of.minting = { claims: { groups: ["ml"], ...claims }, ...minting };
    return await of.token(client);
  }

  /** A provider's own key of this name. */
  keyOf(name: string, of = this.shared): SigningKey & { readonly kid: string } {
    const jwk = of.keys.find(({ kid }) => kid.startsWith(name));
    if (jwk === undefined) throw new Error(`the provider has no key ${name}`);
    const privateKey = createPrivateKey({ key: jwk, format: "jwk" });
    return { kid: jwk.kid, privateKey, publicKey: createPublicKey(privateKey), jwk };
  }

  /** As the shared provider says them. */
  claims(more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
    const now = Math.floor(Date.now() / 1000);
    const { issuer, audience } = this.shared;
    return { iss: issuer, sub: "ada", aud: audience, iat: now, exp: now + 600, groups: ["ml"], ...more };
  }

  /** What no provider mints, signed with its own key. A text is the payload as it is. */
  async forge(
    payload: unknown,
    header: Partial<CompactJWSHeaderParameters> = {},
    { kid, privateKey } = this.keyOf("ec"),
  ): Promise<string> {
    const bytes = Buffer.from(typeof payload === "string" ? payload : JSON.stringify(payload));
    return await new CompactSign(bytes).setProtectedHeader({ alg: "ES256", kid, ...header }).sign(privateKey);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server[Symbol.asyncDispose]();
    await this.shared[Symbol.asyncDispose]();
    await this.single[Symbol.asyncDispose]();
  }
}
