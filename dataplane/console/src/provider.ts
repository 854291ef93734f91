/**
 * Signing in at an organization's provider by authorization code with PKCE, as a public client (rule 11.2). Tokens are
 * returned to the session, which keeps them where it keeps an admin key. This file stores in `sessionStorage` only what one
 * trip to the provider needs, until the person is back.
 */
import * as oauth from "oauth4webapi";
import type { ConsoleSignIn } from "./api/schema.ts";

const KEPT_TRIP = "gapura-sign-in";
/** Which of the provider's two tokens the service accepts. */
export type TokenKind = "access_token" | "id_token";

/** The tokens that the provider issued. */
export interface Tokens {
  readonly access: string;
  readonly id: string | null;
  readonly refresh: string | null;
}

/** The state of a sign-in while the person is at the provider. */
interface Trip {
  readonly organization: string;
  readonly verifier: string;
  readonly state: string;
  readonly nonce: string;
  readonly stay: boolean;
  /** Address of the view to show afterwards, within the console. */
  readonly to: string;
}

/**
 * Why a sign-in failed. `refused`: by the provider, whose words are `detail`; `away`: the provider fails, or is asked too often;
 * `foreign`: it did not begin in this tab; `insecure`: the page has no TLS.
 */
export class SignInProblem extends Error {
  readonly reason: "refused" | "away" | "foreign" | "insecure";
  readonly detail: string;
  constructor(reason: SignInProblem["reason"], detail = "") {
    super(detail === "" ? reason : `${reason}: ${detail}`);
    this.name = "SignInProblem";
    this.reason = reason;
    this.detail = detail;
  }
}

const clientOf = ({ client_id }: ConsoleSignIn): oauth.Client => ({ client_id });

/** Returns the redirect URI, which must be registered at the provider. */
const returnAddress = (at: ConsoleSignIn) =>
  `${location.origin}/console/sign-in/${encodeURIComponent(at.organization_id)}`;

/** @throws TypeError when the provider cannot be reached; errors of oauth4webapi */
async function discover(at: ConsoleSignIn): Promise<oauth.AuthorizationServer> {
  // Browsers offer cryptography only to pages with TLS and to those of this machine.
  if (!isSecureContext) throw new SignInProblem("insecure");
  const issuer = new URL(at.issuer);
  return await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer));
}

/**
 * Returns an address of the provider's that a person is sent to. The library looks only at those that it asks itself.
 * @throws SignInProblem when it has no TLS
 */
function pageOf(
  server: oauth.AuthorizationServer,
  name: "authorization_endpoint" | "end_session_endpoint",
): URL {
  const url = URL.parse(server[name] ?? "");
  if (url?.protocol !== "https:") throw new SignInProblem("refused", `${name} is no https address`);
  return url;
}

/** Leaves for the provider. @throws like `discover`; SignInProblem when it has no page for that */
export async function leave(
  at: ConsoleSignIn,
  { stay, to }: { readonly stay: boolean; readonly to: string },
): Promise<void> {
  const url = pageOf(await discover(at), "authorization_endpoint");
  const trip: Trip = {
    organization: at.organization_id,
    verifier: oauth.generateRandomCodeVerifier(),
    state: oauth.generateRandomState(),
    nonce: oauth.generateRandomNonce(),
    stay,
    to,
  };
  const parameters = {
    response_type: "code",
    client_id: at.client_id,
    redirect_uri: returnAddress(at),
    scope: at.scopes.join(" "),
    // Providers issue a refresh token for offline_access only with the person's consent.
    prompt: at.scopes.includes("offline_access") ? "consent" : null,
    audience: at.audience,
    resource: at.resource,
    state: trip.state,
    nonce: trip.nonce,
    code_challenge: await oauth.calculatePKCECodeChallenge(trip.verifier),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(parameters))
    if (value !== null) url.searchParams.set(name, value);
  sessionStorage.setItem(KEPT_TRIP, JSON.stringify(trip));
  location.assign(url);
}

/** Whether this address is one that a provider sends people back to, though it may lack what it has to have. */
export const isReturn = ({ searchParams }: URL): boolean =>
  ["state", "code", "error"].some((name) => searchParams.has(name));

/**
 * Completes a sign-in. Its stored state is deleted, whether it succeeds or fails.
 * @param back the address that the provider redirected to
 * @throws SignInProblem; TypeError when the provider cannot be reached
 */
export async function arrive(
  at: ConsoleSignIn,
  back: URL,
): Promise<{ readonly tokens: Tokens; readonly stay: boolean; readonly to: string }> {
  const kept = sessionStorage.getItem(KEPT_TRIP);
  sessionStorage.removeItem(KEPT_TRIP);
  const trip = kept === null ? null : (JSON.parse(kept) as Trip);
  if (trip === null || trip.organization !== at.organization_id) throw new SignInProblem("foreign");
  if (back.searchParams.get("state") !== trip.state) throw new SignInProblem("foreign");
  const server = await discover(at);
  const client = clientOf(at);
  const tokens = await understood(async () => {
    const parameters = oauth.validateAuthResponse(server, client, back, trip.state);
    const answer = await oauth.authorizationCodeGrantRequest(
      server,
      client,
      oauth.None(),
      parameters,
      returnAddress(at),
      trip.verifier,
      ofResource(at),
    );
    return await oauth.processAuthorizationCodeResponse(server, client, answer, {
      expectedNonce: trip.nonce,
      requireIdToken: true,
    });
  });
  return { tokens: tokensOf(tokens, null), stay: trip.stay, to: trip.to };
}

/**
 * Exchanges the refresh token of a sign-in for new tokens of the same person.
 * @throws SignInProblem; TypeError when the provider cannot be reached
 */
export async function renew(
  at: ConsoleSignIn,
  before: Tokens & { readonly refresh: string },
): Promise<Tokens> {
  const { refresh } = before;
  const server = await discover(at);
  const client = clientOf(at);
  const answer = await understood(async () =>
    oauth.processRefreshTokenResponse(
      server,
      client,
      await oauth.refreshTokenGrantRequest(server, client, oauth.None(), refresh, ofResource(at)),
    ),
  );
  const tokens = tokensOf(answer, refresh);
  // OpenID Connect 12.2: otherwise whoever signed in would go on as somebody else.
  if (tokens.id !== null && before.id !== null && claimsOf(tokens.id)["sub"] !== claimsOf(before.id)["sub"])
    throw new SignInProblem("refused", "the new tokens are another person's");
  // Where the provider signs none anew, the one before says whose the next tokens must be.
  return { ...tokens, id: tokens.id ?? before.id };
}

/**
 * Revokes the refresh token and leaves for the provider's own sign-out, where it has one. Its address holds no token: the
 * provider asks the person instead.
 */
export async function signOutAt(at: ConsoleSignIn, refresh: string | null): Promise<void> {
  const server = await discover(at);
  if (refresh !== null && server.revocation_endpoint !== undefined) {
    const answer = await oauth.revocationRequest(server, clientOf(at), oauth.None(), refresh);
    await oauth.processRevocationResponse(answer).catch(() => {});
  }
  if (server.end_session_endpoint === undefined) return;
  const url = pageOf(server, "end_session_endpoint");
  url.searchParams.set("client_id", at.client_id);
  url.searchParams.set("post_logout_redirect_uri", returnAddress(at));
  location.assign(url);
}

const ofResource = ({ resource }: ConsoleSignIn) =>
  resource === null ? {} : { additionalParameters: { resource } };

const tokensOf = (answer: oauth.TokenEndpointResponse, refresh: string | null): Tokens => ({
  access: answer.access_token,
  id: answer.id_token ?? null,
  // A provider may replace a refresh token that is used.
  refresh: answer.refresh_token ?? refresh,
});

/** The status of an answer that the library made an error of; null: it is no such error. */
const statusOf = (error: unknown): number | null => {
  if (error instanceof oauth.ResponseBodyError) return error.status;
  return error instanceof Error && error.cause instanceof Response ? error.cause.status : null;
};

/** Turns a provider's refusal, or its failure, into a `SignInProblem`. */
async function understood<Value>(ask: () => Promise<Value>): Promise<Value> {
  try {
    return await ask();
  } catch (error) {
    const status = statusOf(error);
    if (status !== null && (status === 429 || status >= 500))
      throw new SignInProblem("away", `HTTP ${status}`);
    if (error instanceof oauth.AuthorizationResponseError || error instanceof oauth.ResponseBodyError) {
      const { error: code, error_description: words } = error;
      throw new SignInProblem("refused", words === undefined ? code : `${code}: ${words}`);
    }
    if (error instanceof oauth.OperationProcessingError || error instanceof oauth.UnsupportedOperationError)
      throw new SignInProblem("refused", error.message);
    throw error;
  }
}

/** Returns when a token ends, in Unix milliseconds; 0 where it is no JSON Web Token, which this service would refuse. */
export function endOf(token: string): number {
  const { exp } = claimsOf(token);
  return typeof exp === "number" ? exp * 1000 : 0;
}

/** Returns what a token says, unverified; nothing where it is no JSON Web Token. */
function claimsOf(token: string): Readonly<Record<string, unknown>> {
  try {
    const payload = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    return (JSON.parse(atob(payload)) as Readonly<Record<string, unknown>> | null) ?? {};
  } catch {
    return {};
  }
}
