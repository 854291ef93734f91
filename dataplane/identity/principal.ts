import type { Payer } from "../billing/meter.ts";

/**
 * Who is calling: a key, or a person with a token (rule 13.2). Code that takes a principal does not ask which of the two it
 * is: `keyId` is `apikey_…` or `usr_…`.
 */
export interface Principal extends Payer {
  readonly keyName: string;
  /** Project of a caller that may ask models; others have none. */
  readonly projectId: string | null;
  /** Unix milliseconds from which the key is refused; null: never. */
  readonly expiresAt: number | null;
}

/** Finds the owner of a key by its SHA-256 (hex). Unknown, inactive, revoked, suspended: null. */
export interface Directory {
  /**
   * `maxAgeMs`: how old a cached answer may be (free endpoints ask for under a second, design.md §4.1). A cached
   * answer comes at once, so that most requests do not wait a turn for it.
   */
  find(sha256: string, maxAgeMs: number): Principal | null | Promise<Principal | null>;
  /** Whether the key was valid when it was last looked up here. */
  knows(sha256: string): boolean;
  /** As `find`, for an unknown key of a caller who sends too many of them: it costs the store next to nothing. */
  findQueued(sha256: string): Promise<Principal | null>;
}

/** Finds who sent a token; at once when it is remembered. @throws ApiError 401, 503 */
export interface People {
  find(token: string): Principal | Promise<Principal>;
}
