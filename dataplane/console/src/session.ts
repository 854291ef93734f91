/**
 * Who is signed in: with an admin key, or as a person at the organization's provider. Keys and tokens stand in memory,
 * and, when asked to stay, in `sessionStorage` as well (rule 11.2). They are never written anywhere else.
 */
import { ApiProblem, call, send, type Answer, type CallOptions, type Operation } from "./api/client.ts";
import type { ConsoleSignIn, User } from "./api/schema.ts";
import { tabStorage } from "./lib/storage.ts";
import { Store } from "./lib/store.ts";
import type { TokenKind, Tokens } from "./provider.ts";

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
  /** What its calls are made with. @throws SignInProblem, TypeError when it has to be renewed and cannot be */
  readonly bearer: () => string | Promise<string>;
  /** Null: signed in with a key. */
  readonly person: Person | null;
  /** Whether changes are refused: nothing that would make one is offered. */
  readonly readsOnly: boolean;
}
export const session = new Store<Session | null>(null);
/** For what an admin key cannot do; asked for once. */
export const inferenceKey = new Store<string | null>(null);
/** Why somebody was signed out, told at the next sign-in. */
export const expelled = new Store(false);
/** What went wrong on the way back from the provider. */
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

/** Where people of an organization sign in. @throws ApiProblem 404 where they do not */
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
  // Whoever cannot be reached does not keep anybody signed in here.
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

/** What stayed in this tab: a person's sign-in, else an admin key. */
export function kept(): { readonly person: Person | null; readonly key: string | null } {
  const person = tabStorage?.getItem(KEPT_PERSON) ?? null;
  return {
    person: person === null ? null : (JSON.parse(person) as Person),
    key: tabStorage?.getItem(KEPT_KEY) ?? null,
  };
}

/** Signs in with what stayed. False: that is no longer valid, and forgotten. */
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
  (error instanceof Error && error.name === "SignInProblem");

/** Signs a person in with the first token that the service takes. @throws ApiProblem when it takes none */
export async function enter(at: ConsoleSignIn, tokens: Tokens, stay: boolean): Promise<void> {
  const kinds: readonly TokenKind[] = tokens.id === null ? ["access_token"] : ["access_token", "id_token"];
  let refusal: unknown;
  for (const kind of kinds) {
    try {
      await resumePerson({ at, kind, stay, tokens });
      return;
    } catch (error) {
      // What is said of a token for this service says more than what is said of another one.
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

/** The person's token, renewed shortly before its end; calls at the same time wait for one renewal. */
function bearerOf(person: Person): () => Promise<string> {
  let renewal: Promise<void> | null = null;
  const current = () => (person.kind === "access_token" ? person.tokens.access : (person.tokens.id ?? ""));
  return async () => {
    const { endOf, renew } = await provider();
    const { refresh } = person.tokens;
    const end = endOf(current());
    if (refresh !== null && end > 0 && end - Date.now() < RENEW_BEFORE_MS) {
      renewal ??= (async () => {
        person.tokens = await renew(person.at, refresh);
        // Signed out meanwhile, nothing is kept.
        if (session.value?.person === person) keep(person);
      })().finally(() => (renewal = null));
      await renewal;
    }
    return current();
  };
}

/** A call with the admin key or as the person. */
export const admin = <Name extends Operation>(
  name: Name,
  options?: CallOptions<Name>,
): Promise<Answer<Name>> => asAdmin((key) => call(key, name, options));

/** A file that the admin key may have: a link could not carry the key. */
export const adminFile = (url: string): Promise<Blob> =>
  asAdmin(async (key) => await (await send(key, url)).blob());

/** A key or token that is no longer valid signs out. */
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

/** A call with the inference key. */
export const inference = <Name extends Operation>(
  name: Name,
  options?: CallOptions<Name>,
): Promise<Answer<Name>> => asHolder((key) => call(key, name, options));

/** A file that the inference key may have. */
export const inferenceFile = (url: string): Promise<Blob> =>
  asHolder(async (key) => await (await send(key, url)).blob());

/** The same as it comes: there may be more of it than a page can hold. */
export const inferenceStream = (url: string, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> =>
  asHolder(async (key) => (await send(key, url, { signal })).body ?? new Blob([]).stream());

/** A key that is refused is forgotten, so that it is asked for again. */
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
