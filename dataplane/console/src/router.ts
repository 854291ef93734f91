/** Which view stands under which address. Everything that a view shows stands in its address, but never a secret. */
import { Store } from "./lib/store.ts";

export const BASE = "/console/";
export const views = [
  "overview",
  "keys",
  "usage",
  "costs",
  "requests",
  "models",
  "batches",
  "files",
  "playground",
  "configuration",
] as const;
export type View = (typeof views)[number];

export interface Place {
  /** Null: no view has this address. */
  readonly view: View | null;
  readonly query: URLSearchParams;
}

const here = (): Place => {
  const path = location.pathname.slice(BASE.length).replace(/\/+$/, "");
  const view =
    path === "" || path === "index.html" ? "overview" : (views.find((one) => one === path) ?? null);
  return { view, query: new URLSearchParams(location.search) };
};

export const place = new Store<Place>(here());

/** Of a key no more than lists show: whoever looks for one pastes all of it, and an address is kept and shared. */
const withoutKeys = (text: string): string => text.replace(/\b(sk-(?:adm-)?svc-[-+/\w]{6})[-+/=\w]+/g, "$1");

export const addressOf = (view: View, query: Readonly<Record<string, string>> = {}): string => {
  const text = new URLSearchParams(
    Object.entries(query).map(([name, value]) => [name, withoutKeys(value)]),
  ).toString();
  return `${BASE}${view === "overview" ? "" : view}${text === "" ? "" : `?${text}`}`;
};

const SIGN_IN = `${BASE}sign-in/`;

/** The organization whose page for signing in has this address; null: another page. */
export function signInOrganization({ pathname }: URL): string | null {
  if (!pathname.startsWith(SIGN_IN)) return null;
  try {
    return decodeURIComponent(pathname.slice(SIGN_IN.length).replace(/\/+$/, ""));
  } catch {
    return null;
  }
}

/** What somebody who signs in came for: on a page for signing in its `to`; elsewhere a sign-in ended at this very view. */
export function wantedView(address: URL): string {
  if (signInOrganization(address) === null) return `${address.pathname}${address.search}`;
  return address.searchParams.get("to") ?? "";
}

/** An address of this console and of no other page, whatever text asks for: else the overview's. */
export function addressIn(text: string): string {
  const base = new URL(BASE, location.origin);
  if (text === "" || !URL.canParse(text, base)) return BASE;
  const { origin, pathname, search } = new URL(text, base);
  const isView = origin === base.origin && pathname.startsWith(BASE) && !pathname.startsWith(SIGN_IN);
  return isView ? `${pathname}${search}` : BASE;
}

/** Shows another address without a step back to the present one. */
export function replace(address: string): void {
  history.replaceState(null, "", address);
  place.set(here());
}

export function go(address: string): void {
  history.pushState(null, "", address);
  place.set(here());
}

/** Changes what the present view shows; an empty value takes a parameter away. */
export function refine(changes: Readonly<Record<string, string>>): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") query.delete(name);
    else query.set(name, withoutKeys(value));
  }
  const text = query.toString();
  history.replaceState(null, "", `${location.pathname}${text === "" ? "" : `?${text}`}`);
  place.set(here());
}

addEventListener("popstate", () => place.set(here()));
