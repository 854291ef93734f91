/**
 * Who is signed in. Keys stand in memory; the admin key, when asked to stay, in `sessionStorage` as well (rule 11.2).
 * Neither is ever written anywhere else.
 */
import { ApiProblem, call, send, type Answer, type CallOptions, type Operation } from "./api/client.ts";
import { Store } from "./lib/store.ts";

const KEPT_KEY = "gapura-admin-key";

export interface Session {
  readonly adminKey: string;
  readonly organization: string;
}
export const session = new Store<Session | null>(null);
/** For what an admin key cannot do; asked for once. */
export const inferenceKey = new Store<string | null>(null);
/** Why somebody was signed out, told at the next sign-in. */
export const expelled = new Store(false);

/** @throws ApiProblem when the key is refused. */
export async function signIn(adminKey: string, stay: boolean): Promise<void> {
  const { name } = await call(adminKey, "GET /v1/organizations/me");
  if (stay) sessionStorage.setItem(KEPT_KEY, adminKey);
  else sessionStorage.removeItem(KEPT_KEY);
  expelled.set(false);
  session.set({ adminKey, organization: name });
}

export function signOut(): void {
  sessionStorage.removeItem(KEPT_KEY);
  inferenceKey.set(null);
  session.set(null);
}

/** Signs in with the key that stayed, if there is one. */
export async function resume(): Promise<void> {
  const kept = sessionStorage.getItem(KEPT_KEY);
  if (kept === null) return;
  try {
    await signIn(kept, true);
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 401) {
      sessionStorage.removeItem(KEPT_KEY);
      expelled.set(true);
    } else throw error;
  }
}

/** A call with the admin key. */
export const admin = <Name extends Operation>(
  name: Name,
  options?: CallOptions<Name>,
): Promise<Answer<Name>> => asAdmin((key) => call(key, name, options));

/** A file that the admin key may have: a link could not carry the key. */
export const adminFile = (url: string): Promise<Blob> =>
  asAdmin(async (key) => await (await send(key, url)).blob());

/** A key that is no longer valid signs out. */
async function asAdmin<Value>(ask: (key: string) => Promise<Value>): Promise<Value> {
  const current = session.value;
  if (current === null) throw new Error("nobody is signed in");
  try {
    return await ask(current.adminKey);
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 401 && session.value === current) {
      signOut();
      expelled.set(true);
    }
    throw error;
  }
}

/** A call with the inference key. One that is refused is forgotten, so that it is asked for again. */
export async function inference<Name extends Operation>(
  name: Name,
  options?: CallOptions<Name>,
): Promise<Answer<Name>> {
  const key = inferenceKey.value ?? "";
  try {
    return await call(key, name, options);
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 401 && inferenceKey.value === key)
      inferenceKey.set(null);
    throw error;
  }
}
