/**
 * The routing as it may be shown: static headers and query parameters by their names, never with their values, which
 * are credentials often enough (rule 7.15). Pure.
 */
import type { Routing } from "./schema.ts";

const HIDDEN = "***";

/** Returns the routing without secrets, in the same form. */
export function shownRouting(routing: Routing): Routing {
  const text = JSON.stringify(routing, (_, value: unknown) =>
    typeof value === "string" ? withoutSecrets(value) : value,
  );
  const shown = JSON.parse(text) as Routing;
  const routes = shown.routes.map((route) => ({
    ...route,
    upstreams: route.upstreams.map((upstream) => ({ ...upstream, headers: namesOf(upstream.headers) })),
  }));
  return { ...shown, routes };
}

const namesOf = (headers: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.keys(headers).map((name) => [name, HIDDEN]));

/** Strips an address down to its place and the names of its parameters; any other text stays as it is. */
function withoutSecrets(text: string): string {
  const address = /^([a-z][a-z0-9+.-]*:\/\/)(?:[^/?#@]*@)?([^?#]*)(?:\?([^#]*))?/i.exec(text);
  if (address === null) return text;
  const [whole, scheme = "", place = "", query] = address;
  // A fragment goes nowhere and is left out.
  if (query === undefined) return whole.includes("@") ? scheme + place : text;
  const names = query.split("&").map((parameter) => parameter.replace(/=.*$/s, `=${HIDDEN}`));
  return `${scheme}${place}?${names.join("&")}`;
}
