/**
 * The keys of one issuer, as this process last read them (rule 13.1). They are read in the background while tokens of
 * the issuer come, so that requests seldom wait, and a key that vanished is refused within a minute. Tokens that name
 * new keys cause one look in 30 s, however many come. A key that was looked for in vain is new no more: whoever goes on
 * sending its tokens does not keep others' from being looked for.
 */
import { z } from "zod";
import type { IdentityEntry } from "../../config/schema.ts";
import type { Clock } from "../../lib/clock.ts";
import type { FetchJson } from "./fetch-json.ts";
import { type IssuerKey, type KeySet, keysFor, MOST_KID, readKeySet, type TokenHeader } from "./key-set.ts";

/** Where an issuer's keys are, and what is opened to reach them. */
export type IssuerPlace = Pick<IdentityEntry, "issuer" | "jwksUrl" | "allowCidrs" | "allowPorts">;

/** The background reads anew after so long; with the round of looks and a fetch it stays below `MOST_AGE_MS`. */
const REFRESH_MS = 40_000;
/** Older keys are read anew before a token is believed: a key that vanished may be among them. */
const MOST_AGE_MS = 55_000;
/** An issuer whose tokens nobody sent for so long is left in peace. */
const IN_USE_MS = 10 * 60_000;
/** While the issuer is away, so long after its last good answer. */
const STALE_MS = 10 * 60_000;
const UNKNOWN_KEY_MS = 30_000;
/** Unknown keys that are remembered. Whoever makes up more makes older ones new again. */
const MOST_UNKNOWN = 100;
/** After a failure nobody asks again sooner. */
const FAILURE_PAUSE_MS = 5_000;
const TELL_MS = 60_000;
const DISCOVERY_MS = 60 * 60_000;

const discoverySchema = z.object({ issuer: z.string(), jwks_uri: z.string() });

export class IssuerKeys {
  readonly #place: IssuerPlace;
  readonly #fetchJson: FetchJson;
  readonly #clock: Clock;
  #keys: KeySet = [];
  /** When, by a clock that takes no steps: of the last good answer, of the last look, of the last one for a new key, of the last use. */
  #goodAt = Number.NEGATIVE_INFINITY;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #newAt = Number.NEGATIVE_INFINITY;
  #usedAt = Number.NEGATIVE_INFINITY;
  /** And of the last failure that was told. */
  #toldAt = Number.NEGATIVE_INFINITY;
  #failure: unknown = null;
  /** When each key that is not there was first asked for, the oldest first. */
  readonly #unknown = new Map<string, number>();
  #looking: Promise<void> | null = null;
  #discovered: { readonly url: string; readonly at: number } | null = null;

  /** @param clock takes no steps; nothing but ages is reckoned by it */
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
   * The keys that a token may be signed with; none: it names one that the issuer does not have. `kid`: it has to name
   * one. `away`: the issuer's keys cannot be read, and those of before are too old, or are not the one that it names.
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

  /** For a token that came at `now`. */
  async #lookForNew(header: TokenHeader, now: number): Promise<void> {
    if ((header.kid?.length ?? 0) > MOST_KID) return;
    const since = this.#unknownSince(header, now);
    if (this.#looking !== null) await this.#looking;
    // A look that began before the token came says nothing of a key that is younger.
    if (this.#knows(header) || this.#lookedAt >= now) return;
    // What was looked for in vain may be published late: it is looked for again when nobody has looked for a while.
    const isNew = since > this.#goodAt;
    if (now - (isNew ? this.#newAt : this.#lookedAt) < UNKNOWN_KEY_MS) return;
    if (isNew) this.#newAt = now;
    await this.#look(now);
  }

  /** When a key that is not there was first asked for. */
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
   * Reads them anew when it is time, after a failure soon again while the last good answer still counts as new: it may have
   * been one of many, and a key may have vanished since.
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

  /** One look for all who ask at the same time. Never throws. */
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
