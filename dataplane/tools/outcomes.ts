/** The results of server tools, in one form for all engines and pages. */
import type { WebFetchErrorCode, WebSearchErrorCode } from "../dialects/messages/types.ts";

/** One search result, or one post of x_search. */
export interface SearchHit {
  readonly url: string;
  readonly title: string | null;
  /** At most 1,000 characters. */
  readonly text: string;
  /** When it was published, in the engine's own words. */
  readonly age: string | null;
}

export type SearchOutcome =
  | {
      readonly kind: "hits";
      readonly hits: readonly SearchHit[];
      /** x_search only: posts and distinct profiles that were fetched. */
      readonly posts: number;
      readonly profiles: number;
    }
  /** `detail` is for logs. */
  | { readonly kind: "error"; readonly code: WebSearchErrorCode; readonly detail: string };

/** Makes the outcome of a search that failed, whatever the cause. @param detail for logs. */
export const failedSearch = (detail: string): SearchOutcome => ({
  kind: "error",
  code: "unavailable",
  detail,
});

/** `detail` of an engine's answer that has no hits though its search did not end without results. */
export const NO_RESULT = "answer not understood, or of a failed search";

/** An opened page: text, or a PDF as base64. */
export interface FetchedPage {
  /** After redirects. */
  readonly url: string;
  readonly title: string | null;
  /** ISO 8601 UTC. */
  readonly retrievedAt: string;
  readonly source:
    | { readonly type: "text"; readonly text: string }
    | { readonly type: "pdf"; readonly base64: string };
}

export type FetchOutcome =
  | { readonly kind: "page"; readonly page: FetchedPage; readonly cached: boolean }
  /** `detail` is for logs. */
  | { readonly kind: "error"; readonly code: WebFetchErrorCode; readonly detail: string };
