/**
 * Finds the principal of a key. Keys are in Postgres: declared ones are copied there from the snapshot (copy-snapshot.ts),
 * others are made through the admin API. This process remembers what it looked up. A revoked key stops at once all the same:
 * billed requests compare the organization's key epoch in the hold script, free ones ask for fresh entries.
 */
import { LRUCache } from "lru-cache";
import { sql, type DatabasePool } from "slonik";
import { ApiError } from "../lib/api-error.ts";
import { steadyClock, type Clock } from "../lib/clock.ts";
import { isPersonId } from "../billing/scopes.ts";
import { Gathered } from "../lib/gathered.ts";
import { SharedCache } from "../lib/shared-cache.ts";
import type { CurrentKey } from "../billing/holds/held-bill.ts";
import { lookedUpInTime } from "../store/lookup-time.ts";
import { KeyLimits, type LimitsNow } from "./key-limits.ts";
import { KeyLookupQueue } from "./key-lookup-queue.ts";
import { KeyUses } from "./key-uses.ts";
import { MOST_PEOPLE, type Person, UNSEEN_DAYS, updatePerson, writePerson } from "./person.ts";
import { foundSchema, isValidKey, principalSchema, selectPrincipals } from "./principal-rows.ts";
import { principalWeight, type Directory, type Principal } from "./principal.ts";

const MOST_REMEMBERED = 50_000;
/**
 * Age up to which an entry is used while Postgres is away: no key can be revoked there then, so the entry is still right;
 * yet not for ever, as it may be only this pod that cannot reach it.
 */
const STALE_MS = 5 * 60_000;
/** How long Postgres counts as frozen after it left a look-up without an answer. */
const AWAY_MS = 10_000;
/**
 * Age from which a known person is looked up again, without a request that waits for it: what ends them is their token and
 * their organization's rules, which this process has. Only the rest, such as their project's limits, may be older.
 */
const PERSON_AGE_MS = 30_000;
/** Most keys that one statement looks up again, for as many requests. */
const RECHECKED_AT_ONCE = 500;

/** For this long after an organization had no room for one more person, newcomers cost a look-up and no count. */
const FULL_MS = 5_000;
/** A caller that accepts entries this old accepts the answer of a look-up that is under way. */
const SHARED_MS = 5_000;

interface Remembered {
  readonly principal: Principal;
  /** When the look-up began, by the clock for ages. */
  readonly at: number;
}

export interface KeyDirectoryOptions {
  readonly pool: DatabasePool;
  /** Unix milliseconds, for when keys end and when they were used. */
  readonly clock: Clock;
  /** For the ages of what is remembered: a clock set back must not keep alive a key that was revoked. */
  readonly ages?: Clock;
}

export class KeyDirectory implements Directory {
  readonly #options: KeyDirectoryOptions;
  readonly #ages: Clock;
  /**
   * Valid keys only: a key tried before it existed is not remembered as unknown (rule 5.2). Shared by organization, so that
   * the many people of one do not make others' requests wait for Postgres.
   */
  readonly #remembered = new SharedCache<Remembered>(MOST_REMEMBERED);
  readonly #lookups = new Map<string, Promise<Principal | null>>();
  /** Keys that ended here, with the time: the answer of a look-up that began before it is not kept. */
  readonly #ended = new LRUCache<string, number>({ max: MOST_REMEMBERED, ttl: 60_000 });
  /**
   * Projects whose limits changed, and organizations that stopped serving, with the time: what was looked up of their keys before
   * it is asked for again.
   */
  readonly #changed = new LRUCache<string, number>({ max: 10_000 });
  readonly #limits: KeyLimits;
  readonly #uses: KeyUses;
  /** Gathers look-ups: when an organization's keys change, all its earlier requests have to look again at the same moment. */
  readonly #rechecks = new Gathered(
    (keyIds: readonly string[]) => lookedUpInTime(this.#recheckTogether(keyIds)),
    RECHECKED_AT_ONCE,
  );
  /** The same for people, by their digests. */
  readonly #personRechecks = new Gathered(
    (sha256s: readonly string[]) => this.#askTogether([...new Set(sha256s)]),
    RECHECKED_AT_ONCE,
  );
  readonly #line = new KeyLookupQueue((sha256s) => this.#lookUpTogether(sha256s));
  /** The same of known callers, by their ids. */
  readonly #again = new KeyLookupQueue((keyIds) => this.#findTogether(keyIds));
  /** Members who came with tokens, by id, as their newest token here says. */
  readonly #members = new SharedCache<Person>(MOST_REMEMBERED);
  /** Organizations that have as many people as they may. */
  readonly #full = new LRUCache<string, true>({ max: 10_000, ttl: FULL_MS });
  /** When Postgres left a look-up without an answer, if none has come since; by the clock for ages. */
  #awayAt = Number.NEGATIVE_INFINITY;

  constructor(options: KeyDirectoryOptions) {
    this.#options = options;
    this.#ages = options.ages ?? steadyClock;
    this.#limits = new KeyLimits(options.pool);
    this.#uses = new KeyUses(options);
  }

  find(sha256: string, maxAgeMs: number): Principal | Promise<Principal | null> {
    const remembered = this.#remembered.get(sha256);
    if (remembered === undefined) return this.#findAnew(sha256, undefined, maxAgeMs);
    const isOutdated = this.#isOutdated(remembered);
    if (isOutdated || this.#ageOf(remembered) >= maxAgeMs) {
      // A look-up that is under way may have begun before the change.
      if (!this.#goesOn(remembered, maxAgeMs))
        return this.#findAnew(sha256, remembered, isOutdated ? 0 : maxAgeMs);
      this.#askOnce(sha256).catch(() => undefined);
    }
    // The key's end may have been moved since.
    if (this.#isExpired(remembered)) return this.#findAnew(sha256, undefined, 0);
    this.#uses.saw(remembered.principal);
    return remembered.principal;
  }

  /** Whether the limits of its project have changed since it was looked up, or its organization has stopped serving. */
  #isOutdated({ principal: { organizationId, projectId }, at }: Remembered): boolean {
    // Both are rare, and keys are looked for with every request.
    if (this.#changed.size === 0) return false;
    const changedAt = (id: string) => this.#changed.get(id) ?? Number.NEGATIVE_INFINITY;
    return at <= Math.max(changedAt(projectId ?? ""), changedAt(organizationId));
  }

  /** Whether Postgres did not answer a moment ago. */
  get #isAway(): boolean {
    return this.#ages.now() - this.#awayAt < AWAY_MS;
  }

  /**
   * Whether what is remembered is taken at once, because Postgres did not answer a moment ago: a frozen one would otherwise
   * hold up each request as long as the first one that met it.
   */
  #goesOn(remembered: Remembered, maxAgeMs: number): boolean {
    return (
      this.#isAway &&
      maxAgeMs >= SHARED_MS &&
      this.#ageOf(remembered) < STALE_MS &&
      !this.#isExpired(remembered)
    );
  }

  #ageOf({ at }: Remembered): number {
    return this.#ages.now() - at;
  }

  #isExpired({ principal: { expiresAt } }: Remembered): boolean {
    return expiresAt !== null && expiresAt <= this.#options.clock.now();
  }

  knows(sha256: string): boolean {
    return this.#remembered.has(sha256);
  }

  async findQueued(sha256: string, address: string): Promise<Principal | null> {
    const principal = await this.#line.find(sha256, address);
    if (principal !== null) this.#uses.saw(principal);
    return principal;
  }

  async findAgain(known: Principal): Promise<Principal | null> {
    const { keyId, organizationId, projectId } = known;
    const principal = await this.#again.find(keyId, organizationId).catch(() => known);
    if (!isPersonId(keyId)) return principal;
    // What ends a person is their token, and another one of theirs may be for another project.
    return principal?.projectId === projectId ? principal : known;
  }

  /** Looks up known callers, by their ids: people as their newest tokens here say. */
  async #findTogether(keyIds: readonly string[]): Promise<ReadonlyMap<string, Principal>> {
    const keys = keyIds.filter((keyId) => !isPersonId(keyId));
    const members = keyIds.flatMap((keyId) => this.#members.get(keyId) ?? []);
    const found = await Promise.all([
      keys.length === 0 ? [] : lookedUpInTime(this.#recheckTogether(keys)),
      members.length === 0 ? [] : this.#askTogether(members.map(({ sha256 }) => sha256)),
    ]);
    const principals = found.flatMap((some) => [...some.values()]);
    return new Map(principals.map((principal) => [principal.keyId, principal]));
  }

  /**
   * Returns the principal of a person whom the organization's rules name; at once when it is remembered.
   * @throws ApiError 403 when they are new and the organization has as many people as it may; 503 when Postgres is away,
   * or does not have the organization yet.
   */
  person(person: Person): Principal | Promise<Principal> {
    const { sha256 } = person;
    const remembered = this.#remembered.get(sha256);
    if (person.kind === "inference") this.#members.set(person.organizationId, person.id, person);
    if (remembered === undefined || !isNamed(person, remembered.principal)) return this.#introduced(person);
    // Postgres may be away: what is remembered is still right, or all that is known.
    if (this.#isOutdated(remembered) && !this.#isAway)
      return this.#introduced(person).catch(() => remembered.principal);
    if (this.#ageOf(remembered) >= PERSON_AGE_MS) this.#askOnce(sha256).catch(() => undefined);
    this.#uses.saw(remembered.principal);
    return remembered.principal;
  }

  async #introduced(person: Person): Promise<Principal> {
    try {
      const principal = await this.#introduce(person);
      if (principal === null) throw new Error("the organization or its project is not in Postgres yet");
      this.#uses.saw(principal);
      return principal;
    } catch (error) {
      throw error instanceof ApiError ? error : unavailable(error);
    }
  }

  /**
   * Returns the person's principal as it is now, written first if it is missing or differs; null: their organization does not
   * serve.
   * @throws ApiError 403
   */
  async #introduce(person: Person): Promise<Principal | null> {
    const principal = await this.#ask(person.sha256);
    if (principal !== null && isNamed(person, principal)) return principal;
    await lookedUpInTime(this.#write(person));
    return await this.#ask(person.sha256);
  }

  /** @throws ApiError 403 */
  async #write(person: Person): Promise<void> {
    const { pool } = this.#options;
    const { organizationId } = person;
    if (await updatePerson(pool, person)) return;
    if (this.#full.has(organizationId)) throw tooManyPeople();
    if ((await writePerson(pool, person)) !== "full") return;
    this.#full.set(organizationId, true);
    throw tooManyPeople();
  }

  async #findAnew(
    sha256: string,
    remembered: Remembered | undefined,
    maxAgeMs: number,
  ): Promise<Principal | null> {
    const principal = await this.#lookUp(sha256, remembered, maxAgeMs >= SHARED_MS);
    if (principal !== null) this.#uses.saw(principal);
    return principal;
  }

  /** Forgets a key that has ended, or whose secret opens another one: from now on this process asks Postgres (rule 5.2). */
  forget(sha256: string): void {
    this.#ended.set(sha256, this.#ages.now());
    this.#remembered.delete(sha256);
    this.#lookups.delete(sha256);
  }

  /** To be called when the limits of a project have changed: from now on this process asks Postgres for its keys. */
  projectChanged(projectId: string): void {
    this.#changed.set(projectId, this.#ages.now());
  }

  /** To be called when an organization was suspended or deleted: from now on this process asks Postgres for its keys. */
  organizationStopped(organizationId: string): void {
    this.#changed.set(organizationId, this.#ages.now());
  }

  /** Looks a key up again: null when it is not valid any more. What is remembered of a valid one is brought up to date. */
  async recheck(keyId: string): Promise<CurrentKey | null> {
    const member = this.#members.get(keyId);
    if (member !== undefined) {
      // As Postgres has the person now: their newest token here may have been for another role.
      const known = (await this.#personRechecks.ask(member.sha256)).get(member.sha256);
      const principal = known !== undefined && isNamed(member, known) ? known : await this.#introduce(member);
      return principal && { ...principal, projectId: principal.projectId ?? "" };
    }
    const principal = (await this.#rechecks.ask(keyId)).get(keyId);
    return principal === undefined ? null : { ...principal, projectId: principal.projectId ?? "" };
  }

  /** Looks up keys; returns the valid ones, by their ids. */
  async #recheckTogether(keyIds: readonly string[]): Promise<ReadonlyMap<string, Principal>> {
    const at = this.#ages.now();
    const rows = await this.#options.pool.any(sql.type(foundSchema)`
      ${selectPrincipals(sql.fragment`, key.sha256`)} where key.id = any(${sql.array([...new Set(keyIds)], "text")}) and ${isValidKey}
    `);
    for (const { sha256, principal } of rows)
      if (this.#remembered.has(sha256)) this.#remember(sha256, principal, at);
    return new Map(rows.map(({ principal }) => [principal.keyId, principal]));
  }

  /** As KeyLimits.of. @throws ApiError 503 */
  async limitsOf(keyId: string, projectId: string): Promise<LimitsNow> {
    try {
      return await this.#limits.of({ keyId, projectId });
    } catch (error) {
      throw unavailable(error);
    }
  }

  /** As KeyUses.write. */
  writeUsed(): Promise<void> {
    return this.#uses.write();
  }

  async #lookUp(
    sha256: string,
    remembered: Remembered | undefined,
    shared: boolean,
  ): Promise<Principal | null> {
    try {
      return await (shared && remembered !== undefined ? this.#askOnce(sha256) : this.#ask(sha256));
    } catch (error) {
      if (remembered !== undefined && this.#ageOf(remembered) < STALE_MS)
        return this.#isExpired(remembered) ? null : remembered.principal;
      throw unavailable(error);
    }
  }

  async #lookUpTogether(sha256s: readonly string[]): Promise<ReadonlyMap<string, Principal>> {
    try {
      return await this.#askTogether(sha256s);
    } catch (error) {
      throw unavailable(error);
    }
  }

  /** As `#ask`, for several keys; what is remembered of keys that are not found stays. */
  async #askTogether(sha256s: readonly string[]): Promise<ReadonlyMap<string, Principal>> {
    const at = this.#ages.now();
    const rows = await lookedUpInTime(
      this.#options.pool.any(sql.type(foundSchema)`
        ${selectPrincipals(sql.fragment`, key.sha256`)} where key.sha256 = any(${sql.array([...sha256s], "text")}) and ${isValidKey}
      `),
    );
    const found = new Map(rows.map(({ sha256, principal }) => [sha256, principal]));
    for (const [sha256, principal] of found) this.#remember(sha256, principal, at);
    return found;
  }

  /**
   * Makes one look-up for all who ask at the same time. Not for a key that is new here or must be fresh: a look-up that
   * began before a key was made or revoked would answer for a request that came after it.
   */
  #askOnce(sha256: string): Promise<Principal | null> {
    const under = this.#lookups.get(sha256);
    if (under !== undefined) return under;
    const looking = this.#ask(sha256).finally(() => {
      // After `forget` a newer look-up may have taken its place.
      if (this.#lookups.get(sha256) === looking) this.#lookups.delete(sha256);
    });
    this.#lookups.set(sha256, looking);
    return looking;
  }

  async #ask(sha256: string): Promise<Principal | null> {
    const at = this.#ages.now();
    let principal: Principal | null;
    try {
      principal = await lookedUpInTime(
        this.#options.pool.maybeOne(sql.type(principalSchema)`
          ${selectPrincipals()} where key.sha256 = ${sha256} and ${isValidKey}
        `),
      );
      this.#awayAt = Number.NEGATIVE_INFINITY;
    } catch (error) {
      this.#awayAt = this.#ages.now();
      throw error;
    }
    if (principal === null) this.#remembered.delete(sha256);
    else this.#remember(sha256, principal, at);
    return principal;
  }

  /** `at`: when its look-up began. */
  #remember(sha256: string, principal: Principal, at: number): void {
    if (at > (this.#ended.get(sha256) ?? Number.NEGATIVE_INFINITY))
      this.#remembered.set(principal.organizationId, sha256, { principal, at }, principalWeight(principal));
  }
}

/** Whether a person's stored name is the one of their token, if that has any. */
const isNamed = ({ name }: Person, { keyName }: Principal): boolean => name === null || name === keyName;

const unavailable = (cause: unknown) =>
  new ApiError("unavailable", "Keys cannot be checked right now. Try again in a moment.", {
    retryAfterSeconds: 1,
    cause,
  });

const tooManyPeople = () =>
  new ApiError(
    "people_limit_reached",
    `Your organization has as many people as it may (${MOST_PEOPLE}), and you are not among them yet. Whoever did not come for ${UNSEEN_DAYS} days makes room.`,
  );
