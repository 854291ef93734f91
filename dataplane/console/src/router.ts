/** Addresses of views. The address holds everything that decides what a view shows, but never a secret. */
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

/** Cuts keys to the part that lists show: a person who looks for a key pastes all of it, and addresses are stored and shared. */
const withoutKeys = (text: string): string => text.replace(/\b(sk-(?:adm-)?svc-[-+/\w]{6})[-+/=\w]+/g, "$1");

export const addressOf = (view: View, query: Readonly<Record<string, string>> = {}): string => {
  const text = new URLSearchParams(
    Object.entries(query).map(([name, value]) => [name, withoutKeys(value)]),
  ).toString();
  return `${BASE}${view === "overview" ? "" : view}${text === "" ? "" : `?${text}`}`;
};

const SIGN_IN = `${BASE}sign-in/`;

/** Returns the organization whose sign-in page has this address; null: another page. */
export function signInOrganization({ pathname }: URL): string | null {
  if (!pathname.startsWith(SIGN_IN)) return null;
  try {
    return decodeURIComponent(pathname.slice(SIGN_IN.length).replace(/\/+$/, ""));
  } catch {
    return null;
  }
}

/** Returns the view to show after signing in: on a sign-in page its `to`; elsewhere the present view, where a sign-in ended. */
export function wantedView(address: URL): string {
  if (signInOrganization(address) === null) return `${address.pathname}${address.search}`;
  return address.searchParams.get("to") ?? "";
}

/** Returns the address of a view of this console, whatever the text says; of anything else the overview's. */
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

/** Changes parameters of the present view; an empty value removes one. */
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
