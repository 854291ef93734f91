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
  /**
   * As `find`, for an unknown key of a caller who sends too many of them: it costs the store next to nothing. `address`:
   * the caller's; addresses take turns.
   */
  findQueued(sha256: string, address: string): Promise<Principal | null>;
  /**
   * Looks a known caller up again, in a queue, as whoever is refused again and again must cost the store next to nothing. As
   * they are known where it does not answer; null: not valid any more.
   */
  findAgain(known: Principal): Promise<Principal | null>;
}

/** Finds who sent a token; at once when it is remembered. @throws ApiError 401, 503 */
export interface People {
  find(token: string): Principal | Promise<Principal>;
}

/** Bytes of lists of models that weigh as much as one more remembered key. */
const HEAVY_BYTES = 1024;
/** Bytes that a text in a list takes in addition to its characters: in the list and in what config/find-route.ts makes of it. */
const TEXT_BYTES = 72;

/** Weighs what is remembered of a key, 1 or more: an organization's keys may each list hundreds of models, and would fill the memory. */
export function principalWeight({ limits }: Pick<Principal, "limits">): number {
  const models = limits.flatMap((scope) => scope.limits.models ?? []);
  return 1 + Math.floor(models.reduce((sum, { length }) => sum + length + TEXT_BYTES, 0) / HEAVY_BYTES);
}
