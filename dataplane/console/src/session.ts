/**
 * Who is signed in: with an admin key, or as a person at the organization's provider. Keys and tokens are in memory, and
 * in `sessionStorage` as well if the person asks to stay signed in (rule 11.2). They are never written anywhere else.
 */
import { ApiProblem, call, send, type Answer, type CallOptions, type Operation } from "./api/client.ts";
import type { ConsoleSignIn, User } from "./api/schema.ts";
import { tabStorage } from "./lib/storage.ts";
import { Store } from "./lib/store.ts";
import type { SignInProblem, TokenKind, Tokens } from "./provider.ts";

const KEPT_KEY = "gapura-admin-key";
const KEPT_PERSON = "gapura-person";
/** A token that ends within this time is renewed before it is used. */
const RENEW_BEFORE_MS = 30_000;

/** A person's sign-in. */
interface Person {
  readonly at: ConsoleSignIn;
  readonly kind: TokenKind;
  readonly stay: boolean;
  tokens: Tokens;
}

export interface Session {
  readonly organization: string;
  /** Returns the key or token of its calls. @throws SignInProblem, TypeError when a token must be renewed and cannot be */
  readonly bearer: () => string | Promise<string>;
  /** Null: signed in with a key. */
  readonly person: Person | null;
  /** Whether changes are refused; the console offers none then. */
  readonly readsOnly: boolean;
}
export const session = new Store<Session | null>(null);
/** The key for what an admin key cannot do; asked for once. */
export const inferenceKey = new Store<string | null>(null);
/** Whether the last session ended because its key or token was refused; shown at the next sign-in. */
export const expelled = new Store(false);
/** The error of a sign-in at the provider that failed. */
export const returned = new Store<Error | null>(null);

/** The provider's library is not part of the first load. */
export const provider = () => import("./provider.ts");

/** @throws ApiProblem when the key is refused. */
export async function signIn(adminKey: string, stay: boolean): Promise<void> {
  const { name } = await call(adminKey, "GET /v1/organizations/me");
  forget();
  if (stay) tabStorage?.setItem(KEPT_KEY, adminKey);
  expelled.set(false);
  session.set({ organization: name, bearer: () => adminKey, person: null, readsOnly: false });
}

/** Reads where an organization's people sign in. @throws ApiProblem 404 where they cannot */
export const signInOf = (organization: string): Promise<ConsoleSignIn> =>
  call(null, "GET /v1/organizations/{id}/sign_in", { path: { id: organization } });

/** Leaves for the provider; `to`, the address of a view, is shown when the person is back. */
export async function signInAt(at: ConsoleSignIn, stay: boolean, to: string): Promise<void> {
  expelled.set(false);
  returned.set(null);
  const { leave } = await provider();
  await leave(at, { stay, to });
}

export function signOut(): void {
  const person = session.value?.person ?? null;
  forget();
  inferenceKey.set(null);
  session.set(null);
  // Signing out here does not depend on the provider, which may be out of reach.
  if (person !== null)
    void provider()
      .then(({ signOutAt }) => signOutAt(person.at, person.tokens.refresh))
      .catch(() => {});
}

function forget(): void {
  tabStorage?.removeItem(KEPT_KEY);
  tabStorage?.removeItem(KEPT_PERSON);
}

function expel(): void {
  forget();
  inferenceKey.set(null);
  session.set(null);
  expelled.set(true);
}

/** Returns what stayed in this tab: a person's sign-in, else an admin key. */
export function kept(): { readonly person: Person | null; readonly key: string | null } {
  const person = tabStorage?.getItem(KEPT_PERSON) ?? null;
  return {
    person: person === null ? null : (JSON.parse(person) as Person),
    key: tabStorage?.getItem(KEPT_KEY) ?? null,
  };
}

/** Signs in with what stayed in the tab. False: it is no longer valid, and is deleted. */
export async function isTaken(resumed: () => Promise<void>): Promise<boolean> {
  try {
    await resumed();
    return true;
  } catch (error) {
    if (!isRefusal(error)) throw error;
    expel();
    return false;
  }
}

const isRefusal = (error: unknown): boolean =>
  (error instanceof ApiProblem && error.status === 401) ||
  (error instanceof Error && error.name === "SignInProblem" && (error as SignInProblem).reason !== "away");

/** Signs a person in with the first token that the service takes. @throws ApiProblem when it takes none */
export async function enter(at: ConsoleSignIn, tokens: Tokens, stay: boolean): Promise<void> {
  const kinds: readonly TokenKind[] = tokens.id === null ? ["access_token"] : ["access_token", "id_token"];
  let refusal: unknown;
  for (const kind of kinds) {
    try {
      await resumePerson({ at, kind, stay, tokens });
      return;
    } catch (error) {
      // The error of the first token, the one for this service, says more than that of the second.
      if (!isRefusal(error)) throw error;
      refusal ??= error;
    }
  }
  throw refusal;
}

/** Signs a person in. @throws ApiProblem when the token is refused, and like `Session.bearer` */
export async function resumePerson(person: Person): Promise<void> {
  const bearer = bearerOf(person);
  const token = await bearer();
  const { name } = await call(token, "GET /v1/organizations/me");
  const { role }: User = await call(token, "GET /v1/organization/users/{id}", { path: { id: "me" } });
  tabStorage?.removeItem(KEPT_KEY);
  keep(person);
  expelled.set(false);
  returned.set(null);
  session.set({ organization: name, bearer, person, readsOnly: role !== "admin" });
}

function keep(person: Person): void {
  if (person.stay) tabStorage?.setItem(KEPT_PERSON, JSON.stringify(person));
  else tabStorage?.removeItem(KEPT_PERSON);
}

/**
 * The person's token, renewed shortly before its end; calls at the same time wait for one renewal. While the provider is away the
 * present token is used to its end.
 */
function bearerOf(person: Person): () => Promise<string> {
  let renewal: Promise<void> | null = null;
  const current = () => (person.kind === "access_token" ? person.tokens.access : (person.tokens.id ?? ""));
  return async () => {
    const { endOf, renew } = await provider();
    const { refresh } = person.tokens;
    const end = endOf(current());
    if (refresh !== null && end > 0 && end - Date.now() < RENEW_BEFORE_MS) {
      renewal ??= (async () => {
        person.tokens = await renew(person.at, { ...person.tokens, refresh });
        // If the person signed out meanwhile, nothing is stored.
        if (session.value?.person === person) keep(person);
      })().finally(() => (renewal = null));
      await renewal.catch((error: unknown) => {
        if (isRefusal(error) || end <= Date.now()) throw error;
      });
    }
    return current();
  };
}

/** Calls with the admin key or as the person. */
export const admin = <Name extends Operation>(
  name: Name,
  options?: CallOptions<Name>,
): Promise<Answer<Name>> => asAdmin((key) => call(key, name, options));

/** Reads a file with the admin key: a link could not carry the key. */
export const adminFile = (url: string): Promise<Blob> =>
  asAdmin(async (key) => await (await send(key, url)).blob());

/** Asks with the session's key or token, and signs out when it is no longer valid. */
async function asAdmin<Value>(ask: (key: string) => Promise<Value>): Promise<Value> {
  const current = session.value;
  if (current === null) throw new Error("nobody is signed in");
  try {
    return await ask(await current.bearer());
  } catch (error) {
    if (isRefusal(error) && session.value === current) expel();
    throw error;
  }
}

/** Calls with the inference key. */
export const inference = <Name extends Operation>(
  name: Name,
  options?: CallOptions<Name>,
): Promise<Answer<Name>> => asHolder((key) => call(key, name, options));

/** Reads a file with the inference key. */
export const inferenceFile = (url: string): Promise<Blob> =>
  asHolder(async (key) => await (await send(key, url)).blob());

/** Reads a file as a stream: it may be larger than a page can hold. */
export const inferenceStream = (url: string, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> =>
  asHolder(async (key) => (await send(key, url, { signal })).body ?? new Blob([]).stream());

/** Asks with the inference key, and forgets one that is refused, so that the person is asked for it again. */
async function asHolder<Value>(ask: (key: string) => Promise<Value>): Promise<Value> {
  const key = inferenceKey.value ?? "";
  try {
    return await ask(key);
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 401 && inferenceKey.value === key)
      inferenceKey.set(null);
    throw error;
  }
}
