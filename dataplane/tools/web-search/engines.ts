/** The wire forms of SearXNG, Brave and Tavily (service.md "Engines"). Pure. */
import { z } from "zod";
import type { UserLocation } from "../declaration-reader.ts";
import type { DomainLists } from "../domains.ts";
import { engineUrl, readableEntries, type EngineRequest } from "../engine-call.ts";

export interface SearchOptions {
  /** Results wanted, 1 to 10. */
  readonly results: number;
  readonly domains: DomainLists;
  readonly location: UserLocation | null;
}

export interface RawHit {
  readonly url: string;
  readonly title?: string | null | undefined;
  readonly text?: string | null | undefined;
  readonly age?: string | null | undefined;
}

export interface HttpEngine {
  readonly defaultBaseUrl: string | null;
  /** Makes the request; `located: false` leaves out the location, as engines may refuse countries that they do not know. */
  request(
    baseUrl: string,
    key: string | null,
    query: string,
    options: SearchOptions,
    located: boolean,
  ): EngineRequest;
  /**
   * Reads the hits of an answer; null when it is not understood, or its search failed.
   * @param timing its `server-timing` header.
   */
  read(json: unknown, timing: string): readonly RawHit[] | null;
}

const text = z.string().nullish().catch(null);

/** Reads the hits of a list; null when it is no list. */
function hitsOf<Entry extends z.ZodType>(
  entry: Entry,
  list: unknown,
  toHit: (entry: z.infer<Entry>) => RawHit,
): RawHit[] | null {
  return Array.isArray(list) ? readableEntries(entry, list).map(toHit) : null;
}

const member = (json: unknown, name: string): unknown =>
  typeof json === "object" && json !== null && Object.hasOwn(json, name)
    ? (json as Record<string, unknown>)[name]
    : undefined;

const searxng: HttpEngine = {
  defaultBaseUrl: null,
  request(baseUrl, _key, query, options, located) {
    const language = located ? languageOf(options.location) : null;
    const parameters = {
      q: withSites(query, options.domains, Number.POSITIVE_INFINITY),
      format: "json",
      pageno: "1",
      ...(language === null ? {} : { language }),
    };
    return { method: "GET", url: engineUrl(baseUrl, "/search", parameters), headers: {} };
  },
  read(json, timing) {
    const entry = z.object({ url: z.string(), title: text, content: text, publishedDate: text });
    const hits = hitsOf(entry, member(json, "results"), ({ url, title, content, publishedDate }) => ({
      url,
      title,
      text: content,
      age: publishedDate,
    }));
    // SearXNG asks other engines: without results, while most of them did not answer, the search counts as failed.
    const silent = member(json, "unresponsive_engines");
    const silentOnes = Array.isArray(silent) ? silent.length : 0;
    return hits?.length === 0 && silentOnes > answeringEngines(timing) ? null : hits;
  },
};

/** Counts the engines that answered: SearXNG times them, also those that found nothing (`total_0_wikipedia;dur=210.5`). */
const answeringEngines = (timing: string): number =>
  timing.split(",").filter((entry) => /^\s*total_\d+_/.test(entry)).length;

/** Longest query: Brave refuses longer ones. */
const BRAVE_QUERY_CHARACTERS = 400;

const brave: HttpEngine = {
  defaultBaseUrl: "https://api.search.brave.com",
  request(baseUrl, key, query, options, located) {
    const location = located ? options.location : null;
    const parameters = {
      q: withSites(query, options.domains, BRAVE_QUERY_CHARACTERS),
      count: String(options.results),
      ...(typeof location?.country === "string" ? { country: location.country.toUpperCase() } : {}),
    };
    const headers = {
      ...(key === null ? {} : { "x-subscription-token": key }),
      ...headerOf("x-loc-city", location?.city),
      ...headerOf("x-loc-state-name", location?.region),
      ...headerOf("x-loc-country", location?.country),
      ...headerOf("x-loc-timezone", location?.timezone),
    };
    return { method: "GET", url: engineUrl(baseUrl, "/res/v1/web/search", parameters), headers };
  },
  read(json) {
    const entry = z.object({ url: z.string(), title: text, description: text, page_age: text });
    // An answer without web results has no `web` at all.
    const web = member(json, "web");
    if (web === undefined && typeof json === "object" && json !== null) return [];
    return hitsOf(entry, member(web, "results"), ({ url, title, description, page_age: age }) => ({
      url,
      title,
      text: description,
      age,
    }));
  },
};

const tavily: HttpEngine = {
  defaultBaseUrl: "https://api.tavily.com",
  request(baseUrl, key, query, options, located) {
    const country = located ? countryName(options.location?.country ?? null) : null;
    const { allowed, blocked } = options.domains;
    const body = {
      query,
      max_results: options.results,
      ...(allowed === null ? {} : { include_domains: allowed.map(({ domain }) => domain) }),
      ...(blocked.length === 0 ? {} : { exclude_domains: wholeDomains(options.domains) }),
      ...(country === null ? {} : { country }),
    };
    return {
      method: "POST",
      url: engineUrl(baseUrl, "/search"),
      headers: {
        "content-type": "application/json",
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
      },
      body: JSON.stringify(body),
    };
  },
  read(json) {
    const entry = z.object({ url: z.string(), title: text, content: text, published_date: text });
    return hitsOf(entry, member(json, "results"), ({ url, title, content, published_date: age }) => ({
      url,
      title,
      text: content,
      age,
    }));
  },
};

export const httpEngines = { searxng, brave, tavily } as const satisfies Record<string, HttpEngine>;

/** Most sites in a query: more would push the question out. */
const MAX_SITES = 10;

/** Returns the query with `site:` operators, where they fit; results are checked against the lists afterwards in any case. */
function withSites(query: string, domains: DomainLists, maxCharacters: number): string {
  const sites = domains.allowed?.map(({ domain }) => `site:${domain}`) ?? [];
  const others = wholeDomains(domains).map((domain) => `-site:${domain}`);
  const operators =
    sites.length === 0 ? others.join(" ") : sites.length === 1 ? sites.join("") : `(${sites.join(" OR ")})`;
  const whole = `${query} ${operators}`;
  const fits = sites.length + others.length <= MAX_SITES && whole.length <= maxCharacters;
  return operators !== "" && fits ? whole : query;
}

/** Returns blocked domains without a path: excluding a whole site because of one path would hide the rest of it. */
const wholeDomains = (domains: DomainLists) =>
  domains.blocked.filter(({ path }) => path.length === 0).map(({ domain }) => domain);

/** Makes one header; a value that is not Latin-1, which a header cannot hold, is left out. */
function headerOf(name: string, value: string | undefined): Record<string, string> {
  const sendable = typeof value === "string" && /^[\u0020-\u007e\u00a0-\u00ff]+$/.test(value);
  return sendable ? { [name]: value } : {};
}

/** Returns SearXNG's only field for a location: the language most spoken there, with the country. */
function languageOf(location: UserLocation | null): string | null {
  const country = location?.country?.toUpperCase();
  if (country === undefined || !/^[A-Z]{2}$/.test(country)) return null;
  return `${new Intl.Locale(`und-${country}`).maximize().language}-${country}`;
}

/** Returns a country's name for Tavily, in lower-case English. */
function countryName(country: string | null): string | null {
  if (country === null || !/^[A-Za-z]{2}$/.test(country)) return null;
  const name = new Intl.DisplayNames(["en"], { type: "region", fallback: "none" }).of(country.toUpperCase());
  return name?.toLowerCase() ?? null;
}
