/**
 * A real OpenID provider (oidc-provider) on a loopback port with TLS. Its clients get signed tokens for one audience, and
 * people sign in to its client `console` with their name alone.
 */
import { generateKeyPairSync, randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import Provider from "oidc-provider";
import { Agent, request } from "undici";
import { selfSigned } from "../certificate.ts";

const AUDIENCE = "urn:gapura";
const SECRET = "secret-of-clients";
/** The public client of people. */
export const CONSOLE_CLIENT = "console";
const INTERACTION = "/interaction/";
/** What the page for signing in sends when somebody would rather not. */
const CANCEL = "cancel";

export interface RunningProvider {
  readonly issuer: string;
  readonly audience: string;
  /** Its authority, PEM. */
  readonly ca: string;
  /** Further claims of each client's and person's tokens. */
  readonly claims: Map<string, Readonly<Record<string, unknown>>>;
  /** How long people's tokens of now on last, in seconds. */
  personSeconds: number;
  /** Of clients' tokens of now on. */
  minting: Minting;
  /** Paths that it was asked for, in order. */
  readonly asked: string[];
  /** The private keys that it signs with; what it publishes are their public parts. */
  readonly keys: readonly PrivateKey[];
  /** From now on other keys sign, and those before are published no longer. */
  rotate(): void;
  /** A token of a client, by its own credentials. */
  token(client: string): Promise<string>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** What a provider can be told to say otherwise. */
export interface Minting {
  readonly alg?: string;
  /** Of the algorithms with a shared secret. */
  readonly secret?: Buffer;
  readonly header?: Readonly<Record<string, unknown>>;
  /** Instead of its own claims; undefined takes one away. */
  readonly claims?: Readonly<Record<string, unknown>>;
}

/** As JSON Web Key. */
type PrivateKey = Readonly<Record<string, unknown>> & { readonly kid: string };

const newKey = (): PrivateKey => ({
  ...generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" }),
  kid: randomBytes(8).toString("hex"),
  alg: "ES256",
  use: "sig",
});

/**
 * @param clients their names; each is the `sub` of its tokens
 * @param redirects where people may be sent back to
 * @param newKeys those that it begins with, and that it rotates to
 */
export async function startProvider(
  clients: readonly string[],
  redirects: readonly string[] = [],
  newKeys: () => readonly PrivateKey[] = () => [newKey()],
): Promise<RunningProvider> {
  const certificate = selfSigned(["127.0.0.1"]);
  const claims: RunningProvider["claims"] = new Map();
  const asked: string[] = [];
  let provider: Provider;
  let handle: ReturnType<Provider["callback"]>;
  const server = createServer(certificate, (incoming, response) => {
    asked.push(incoming.url ?? "");
    if (incoming.url?.startsWith(INTERACTION) === true) void signInPage(provider, incoming, response);
    else handle(incoming, response);
  });
  server.listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const issuer = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const lifetime = { personSeconds: 600 };
  let minting: Minting = {};
  let keys: readonly PrivateKey[] = [];
  const rotate = () => {
    keys = newKeys();
    provider = new Provider(issuer, {
      jwks: { keys },
      cookies: { keys: [SECRET] },
      clients: [
        ...clients.map((name) => ({
          client_id: name,
          client_secret: SECRET,
          grant_types: ["client_credentials"],
          redirect_uris: [],
          response_types: [],
          id_token_signed_response_alg: "ES256",
        })),
        ...(redirects.length === 0 ? [] : [consoleClient(redirects)]),
      ],
      clientBasedCORS: () => true,
      findAccount: (_: unknown, id: string) => ({ accountId: id, claims: () => ({ sub: id }) }),
      interactions: { url: (_: unknown, { uid }: { readonly uid: string }) => `${INTERACTION}${uid}` },
      // Nobody is asked whether the console may know them.
      loadExistingGrant: async ({ oidc }: GrantContext) => {
        const grant = new provider.Grant({
          clientId: oidc.client.clientId,
          accountId: oidc.session.accountId,
        });
        grant.addOIDCScope("openid");
        grant.addResourceScope(AUDIENCE, "");
        await grant.save();
        return grant;
      },
      issueRefreshToken: () => true,
      features: {
        devInteractions: { enabled: false },
        clientCredentials: { enabled: true },
        revocation: { enabled: true, allowedPolicy: () => true },
        rpInitiatedLogout: {
          enabled: true,
          logoutSource: (context: { body: string }, form: string) => {
            context.body = `<!doctype html><title>Provider</title>${form}<button form="op.logoutForm" name="logout" value="yes">Sign out here too</button>`;
          },
        },
        resourceIndicators: {
          enabled: true,
          defaultResource: () => AUDIENCE,
          useGrantedResource: () => true,
          getResourceServerInfo: (_: unknown, __: string, { clientId }: { readonly clientId: string }) => ({
            scope: "",
            audience: AUDIENCE,
            accessTokenTTL: clientId === CONSOLE_CLIENT ? lifetime.personSeconds : 600,
            accessTokenFormat: "jwt",
            jwt: { sign: { alg: minting.alg ?? "ES256", key: minting.secret } },
          }),
        },
      },
      formats: {
        customizers: {
          jwt: (_: unknown, { clientId }: { readonly clientId: string }, token: MintedToken) => {
            if (clientId === CONSOLE_CLIENT) return;
            token.header = minting.header;
            Object.assign(token.payload, minting.claims);
          },
        },
      },
      extraTokenClaims: (_: unknown, token: { readonly clientId: string; readonly accountId?: string }) =>
        claims.get(token.accountId ?? token.clientId),
    });
    handle = provider.callback();
  };
  rotate();
  const agent = new Agent({ connect: { ca: certificate.cert } });
  return {
    issuer,
    audience: AUDIENCE,
    ca: certificate.cert,
    claims,
    asked,
    get personSeconds() {
      return lifetime.personSeconds;
    },
    set personSeconds(seconds) {
      lifetime.personSeconds = seconds;
    },
    get minting() {
      return minting;
    },
    set minting(told) {
      minting = told;
    },
    get keys() {
      return keys;
    },
    rotate,
    token: async (client) => {
      const { statusCode, body } = await request(`${issuer}/token`, {
        dispatcher: agent,
        method: "POST",
        headers: {
          authorization: `Basic ${Buffer.from(`${client}:${SECRET}`).toString("base64")}`,
          "content-type": "application/x-www-form-urlencoded",
        },
        body: "grant_type=client_credentials",
      });
      const answer = (await body.json()) as { readonly access_token?: string };
      if (answer.access_token === undefined)
        throw new Error(`the provider says ${statusCode} ${JSON.stringify(answer)}`);
      return answer.access_token;
    },
    [Symbol.asyncDispose]: async () => {
      await agent.destroy();
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

interface MintedToken {
  header: Readonly<Record<string, unknown>> | undefined;
  readonly payload: Record<string, unknown>;
}

interface GrantContext {
  readonly oidc: {
    readonly client: { readonly clientId: string };
    readonly session: { readonly accountId: string };
  };
}

const consoleClient = (redirects: readonly string[]) => ({
  client_id: CONSOLE_CLIENT,
  token_endpoint_auth_method: "none",
  grant_types: ["authorization_code", "refresh_token"],
  response_types: ["code"],
  redirect_uris: redirects,
  post_logout_redirect_uris: redirects,
  id_token_signed_response_alg: "ES256",
});

const PAGE = `<!doctype html><title>Provider</title><form method="post"><label>Name <input name="name"></label>
<button>Go on</button><button name="${CANCEL}" value="1">Cancel</button></form>`;

/** The provider's own page: a name is enough. */
async function signInPage(
  provider: Provider,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (request.method !== "POST") {
    response.setHeader("content-type", "text/html").end(PAGE);
    return;
  }
  let text = "";
  for await (const piece of request) text += String(piece);
  const form = new URLSearchParams(text);
  const result = form.has(CANCEL)
    ? { error: "access_denied", error_description: "the person would rather not" }
    : { login: { accountId: form.get("name") } };
  await provider.interactionFinished(request, response, result);
}
