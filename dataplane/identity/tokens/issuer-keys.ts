/**
 * The keys of one issuer, as this process last read them (rule 13.1). They are read in the background while tokens of
 * the issuer come, so that requests seldom wait, and a key that vanished is refused within a minute. Tokens that name
 * new keys cause one look in 30 s, however many come. A key that was looked for in vain is no longer new: more tokens
 * that name it do not keep other keys from being looked for.
 */
import { z } from "zod";
import type { IdentityEntry } from "../../config/schema.ts";
import type { Clock } from "../../lib/clock.ts";
import type { FetchJson } from "./fetch-json.ts";
import { type IssuerKey, type KeySet, keysFor, MOST_KID, readKeySet, type TokenHeader } from "./key-set.ts";

/** Where an issuer's keys are, and what is opened to reach them. */
export type IssuerPlace = Pick<IdentityEntry, "issuer" | "jwksUrl" | "allowCidrs" | "allowPorts">;

/** Age from which the background reads anew; with the interval of looks and a fetch it stays below `MOST_AGE_MS`. */
const REFRESH_MS = 40_000;
/** Older keys are read anew before a token is believed: a key that vanished may be among them. */
const MOST_AGE_MS = 55_000;
/** An issuer whose tokens nobody sent for so long is not asked in the background. */
const IN_USE_MS = 10 * 60_000;
/** How long after the last good answer the keys count while the issuer is away. */
const STALE_MS = 10 * 60_000;
const UNKNOWN_KEY_MS = 30_000;
/** Most unknown keys that are remembered. With more, the oldest ones count as new again. */
const MOST_UNKNOWN = 100;
/** Shortest time between a failure and the next look. */
const FAILURE_PAUSE_MS = 5_000;
const TELL_MS = 60_000;
const DISCOVERY_MS = 60 * 60_000;

const discoverySchema = z.object({ issuer: z.string(), jwks_uri: z.string() });

export class IssuerKeys {
  readonly #place: IssuerPlace;
  readonly #fetchJson: FetchJson;
  readonly #clock: Clock;
  #keys: KeySet = [];
  /** Times by `#clock`: of the last good answer, of the last look, of the last look for a new key, of the last use. */
  #goodAt = Number.NEGATIVE_INFINITY;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #newAt = Number.NEGATIVE_INFINITY;
  #usedAt = Number.NEGATIVE_INFINITY;
  /** The same of the last failure that was reported. */
  #toldAt = Number.NEGATIVE_INFINITY;
  #failure: unknown = null;
  /** When each unknown key was first asked for, the oldest first. */
  readonly #unknown = new Map<string, number>();
  #looking: Promise<void> | null = null;
  #discovered: { readonly url: string; readonly at: number } | null = null;

  /** @param clock one that takes no steps, for ages only */
  constructor(place: IssuerPlace, fetchJson: FetchJson, clock: Clock) {
    this.#place = place;
    this.#fetchJson = fetchJson;
    this.#clock = clock;
  }

  /** Tells them from the keys of every other place. */
  get name(): string {
    return JSON.stringify(this.#place);
  }

  /** Whether a token that this key signed may be believed at once, as it was before. */
  stillHas(key: IssuerKey): boolean {
    const now = this.#clock.now();
    this.#usedAt = now;
    return this.#isFresh(now) && this.#keys.includes(key);
  }

  /**
   * Returns the keys that a token may be signed with; none: it names a key that the issuer does not have. `kid`: it has to
   * name one. `away`: the issuer's keys cannot be read, and those read before are too old, or lack the one that it names.
   */
  async keysFor(header: TokenHeader): Promise<KeySet | "kid" | "away"> {
    const now = this.#clock.now();
    this.#usedAt = now;
    if (!this.#isFresh(now)) await this.#look(now);
    if (this.#clock.now() - this.#goodAt > STALE_MS) return "away";
    if (!this.#knows(header)) await this.#lookForNew(header, now);
    return this.#failure !== null && !this.#knows(header) ? "away" : keysFor(this.#keys, header);
  }

  #knows(header: TokenHeader): boolean {
    const found = keysFor(this.#keys, header);
    return found === "kid" || found.length > 0 || this.#keys.some(({ kid }) => kid === header.kid);
  }

  /** Looks for the key of a token that came at `now`. */
  async #lookForNew(header: TokenHeader, now: number): Promise<void> {
    if ((header.kid?.length ?? 0) > MOST_KID) return;
    const since = this.#unknownSince(header, now);
    if (this.#looking !== null) await this.#looking;
    // A look that began before the token came says nothing of a newer key.
    if (this.#knows(header) || this.#lookedAt >= now) return;
    // A key that was looked for in vain may be published late: it is looked for again when there was no look for a while.
    const isNew = since > this.#goodAt;
    if (now - (isNew ? this.#newAt : this.#lookedAt) < UNKNOWN_KEY_MS) return;
    if (isNew) this.#newAt = now;
    await this.#look(now);
  }

  /** Returns when an unknown key was first asked for. */
  #unknownSince({ alg, kid }: TokenHeader, now: number): number {
    const name = JSON.stringify([alg, kid]);
    const since = this.#unknown.get(name);
    if (since !== undefined) return since;
    const [oldest] = this.#unknown.keys();
    if (oldest !== undefined && this.#unknown.size >= MOST_UNKNOWN) this.#unknown.delete(oldest);
    this.#unknown.set(name, now);
    return now;
  }

  /**
   * Reads the keys anew when it is time. After a failure it does so soon again while the last good answer still counts as
   * fresh: one failed look must not delay the refusal of a key that has vanished since.
   * @throws Error, once a minute, while they cannot be read.
   */
  async refresh(): Promise<void> {
    const now = this.#clock.now();
    const isNew = now - this.#goodAt <= MOST_AGE_MS;
    const pause = this.#failure !== null && isNew ? FAILURE_PAUSE_MS : REFRESH_MS;
    if (now - this.#usedAt < IN_USE_MS && now - this.#lookedAt >= pause) await this.#look(now);
    if (this.#failure === null || this.#lookedAt - this.#toldAt < TELL_MS) return;
    this.#toldAt = this.#lookedAt;
    throw new Error(`the keys of ${this.#place.issuer} cannot be read`, { cause: this.#failure });
  }

  /** Why the last look failed; null: it did not. */
  get failure(): unknown {
    return this.#failure;
  }

  #isFresh(now: number): boolean {
    if (now - this.#goodAt <= MOST_AGE_MS) return true;
    // The issuer is away, and was asked a moment ago.
    const pause = this.#keys.length === 0 ? FAILURE_PAUSE_MS : MOST_AGE_MS;
    return this.#failure !== null && now - this.#lookedAt <= pause && now - this.#goodAt <= STALE_MS;
  }

  /** Reads the keys, once for all who ask at the same time. Never throws. */
  #look(now: number): Promise<void> {
    if (this.#looking !== null) return this.#looking;
    if (this.#failure !== null && now - this.#lookedAt < FAILURE_PAUSE_MS) return Promise.resolve();
    this.#lookedAt = now;
    this.#looking = this.#read()
      .then(
        (keys) => {
          this.#keys = keys;
          this.#goodAt = now;
          this.#failure = null;
        },
        (error: unknown) => {
          this.#failure = error;
          this.#discovered = null;
        },
      )
      .finally(() => {
        this.#looking = null;
      });
    return this.#looking;
  }

  async #read(): Promise<KeySet> {
    return readKeySet(await this.#fetchJson(await this.#address(), this.#place), this.#keys);
  }

  async #address(): Promise<string> {
    const { issuer, jwksUrl } = this.#place;
    if (jwksUrl !== null) return jwksUrl;
    const now = this.#clock.now();
    if (this.#discovered !== null && now - this.#discovered.at < DISCOVERY_MS) return this.#discovered.url;
    const url = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
    const read = discoverySchema.safeParse(await this.#fetchJson(url, this.#place));
    if (!read.success) throw new Error("not a discovery document");
    // OpenID Connect Discovery 1.0, section 4.3: else one issuer could speak for another.
    if (read.data.issuer !== issuer) throw new Error("the discovery document is another issuer's");
    this.#discovered = { url: read.data.jwks_uri, at: now };
    return read.data.jwks_uri;
  }
}
