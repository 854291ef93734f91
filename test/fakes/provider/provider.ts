/** A real OpenID provider (oidc-provider) on a loopback port with TLS, whose clients get signed tokens for one audience. */
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import Provider from "oidc-provider";
import { Agent, request } from "undici";
import { selfSigned } from "../certificate.ts";

const AUDIENCE = "urn:gapura";
const SECRET = "secret-of-clients";

export interface RunningProvider {
  readonly issuer: string;
  readonly audience: string;
  /** Its authority, PEM. */
  readonly ca: string;
  /** Further claims of each client's tokens. */
  readonly claims: Map<string, Readonly<Record<string, unknown>>>;
  /** Paths that it was asked for, in order. */
  readonly asked: string[];
  /** From now on another key signs, and the one before is published no longer. */
  rotate(): void;
  /** A token of a client, by its own credentials. */
  token(client: string): Promise<string>;
  [Symbol.asyncDispose](): Promise<void>;
}

const newKey = () => ({
  ...generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" }),
  kid: randomBytes(8).toString("hex"),
  alg: "ES256",
  use: "sig",
});

/** @param clients their names; each is the `sub` of its tokens. */
export async function startProvider(clients: readonly string[]): Promise<RunningProvider> {
  const certificate = selfSigned(["127.0.0.1"]);
  const claims: RunningProvider["claims"] = new Map();
  const asked: string[] = [];
  let handle: ReturnType<Provider["callback"]>;
  const server = createServer(certificate, (incoming, response) => {
    asked.push(incoming.url ?? "");
    handle(incoming, response);
  });
  server.listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const issuer = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const rotate = () => {
    handle = new Provider(issuer, {
      jwks: { keys: [newKey()] },
      cookies: { keys: [SECRET] },
      clients: clients.map((name) => ({
        client_id: name,
        client_secret: SECRET,
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
        id_token_signed_response_alg: "ES256",
      })),
      features: {
        devInteractions: { enabled: false },
        clientCredentials: { enabled: true },
        resourceIndicators: {
          enabled: true,
          defaultResource: () => AUDIENCE,
          getResourceServerInfo: () => ({
            scope: "",
            audience: AUDIENCE,
            accessTokenTTL: 600,
            accessTokenFormat: "jwt",
            jwt: { sign: { alg: "ES256" } },
          }),
        },
      },
      extraTokenClaims: (_: unknown, { clientId }: { readonly clientId: string }) => claims.get(clientId),
    }).callback();
  };
  rotate();
  const agent = new Agent({ connect: { ca: certificate.cert } });
  return {
    issuer,
    audience: AUDIENCE,
    ca: certificate.cert,
    claims,
    asked,
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
