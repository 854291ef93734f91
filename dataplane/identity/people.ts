/**
 * Finds who sent a token (rules.md §13): verifies it, finds the organization whose rules accept it, and remembers both by
 * a digest of the whole token until it ends, its key vanishes, or what is declared for its audiences changes. Declarations
 * for other audiences change nothing: where namespaces share an issuer, one that declares again and again would otherwise
 * have the tokens of all verified anew.
 */
import { hash } from "node:crypto";
import { noSnapshot } from "../config/no-snapshot.ts";
import type { IdentityEntry, OrganizationEntry } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { ApiError } from "../lib/api-error.ts";
import { steadyClock, type Clock } from "../lib/clock.ts";
import { FairPlaces } from "../lib/fair-places.ts";
import { SharedCache } from "../lib/shared-cache.ts";
import type { KeyDirectory } from "./directory.ts";
import { personOf, type Person } from "./person.ts";
import type { People, Principal } from "./principal.ts";
import { audiencesOf, nameIn, ruleFor } from "./tokens/claims.ts";
import { furthest, issuerAway, refusedToken, type TokenFault } from "./tokens/faults.ts";
import type { FetchJson } from "./tokens/fetch-json.ts";
import { IssuerKeys } from "./tokens/issuer-keys.ts";
import type { IssuerKey } from "./tokens/key-set.ts";
import { readToken, type UnverifiedToken, type VerifiedToken, verifyToken } from "./tokens/verify.ts";

const MOST_REMEMBERED = 50_000;
/** Audiences of a token that weighs as one; a token with more weighs as several. */
const LIGHT_AUDIENCES = 8;
/**
 * Signatures that are verified at once, of the tokens of one issuer or for one tenant, and of all. That takes threads on which
 * everybody's bodies are unpacked, anybody may make up tokens, and whose keys are large has each cost more.
 */
const VERIFIED_AT_ONCE = { places: 2, placesOfOne: 1, waitingOfOne: 5_000, waiting: 10_000 };
/** With the age that an issuer's keys may have (tokens/issuer-keys.ts) below the minute in which one that vanished is refused. */
const MOST_WAIT_MS = 4_000;

/** An organization that accepts tokens, with the keys of their issuer. */
interface Acceptance {
  readonly organization: OrganizationEntry;
  readonly identity: IdentityEntry;
  readonly keys: IssuerKeys;
}

/** All that is declared for one audience of an issuer; another object as soon as any of it changes. */
interface Declaration {
  /** Digests of all organizations that accept the audience, one after another: what they declare may be long. */
  readonly digests: string;
}

/** All that is declared for one issuer. */
interface Accepted {
  /** Tenants' last, else by namespace and name. */
  readonly acceptances: readonly Acceptance[];
  readonly byAudience: ReadonlyMap<string, Declaration>;
}

interface Remembered {
  readonly issuer: string;
  /** What the token was judged by: each of its audiences with its declaration, if there was any. */
  readonly judgedBy: readonly (readonly [audience: string, declaration: Declaration | undefined])[];
  readonly keys: IssuerKeys;
  readonly key: IssuerKey;
  /** Unix milliseconds. */
  readonly until: number;
  readonly person: Person;
}

export interface TokenPeopleOptions {
  readonly snapshot: () => Snapshot | null;
  readonly directory: Pick<KeyDirectory, "person">;
  readonly fetchJson: FetchJson;
  /** Unix milliseconds, for the times in tokens. */
  readonly clock: Clock;
  /** For the ages of issuers' keys: a clock set back must not keep alive a key that vanished. */
  readonly ages?: Clock;
}

export class TokenPeople implements People {
  readonly #options: TokenPeopleOptions;
  /** Shared by organization: one whose issuer signs ever more tokens does not have others' verified again. */
  readonly #remembered = new SharedCache<Remembered>(MOST_REMEMBERED);
  readonly #turns = new FairPlaces(VERIFIED_AT_ONCE);
  /** Tokens that are being judged, by the same digest. */
  readonly #judging = new Map<string, Promise<Principal>>();
  /** The snapshot that `#accepted` was made of. */
  #snapshot: Snapshot | null = null;
  #accepted: ReadonlyMap<string, Accepted> = new Map();
  /** Issuers' keys, by their `IssuerPlace` as JSON. */
  #keys: ReadonlyMap<string, IssuerKeys> = new Map();

  constructor(options: TokenPeopleOptions) {
    this.#options = options;
  }

  find(token: string): Principal | Promise<Principal> {
    const sha256 = hash("sha256", token, "hex");
    const known = this.#remembered.get(sha256);
    if (known !== undefined && this.#stands(known)) return this.#options.directory.person(known.person);
    const same = this.#judging.get(sha256);
    if (same !== undefined) return same;
    const judging = this.#judge(token, sha256).finally(() => this.#judging.delete(sha256));
    this.#judging.set(sha256, judging);
    return judging;
  }

  /** Reads anew the keys of issuers whose tokens come; to be called every few seconds. @throws errors to be logged. */
  async refresh(): Promise<void> {
    this.#look();
    const read = await Promise.allSettled(Array.from(this.#keys.values(), (keys) => keys.refresh()));
    const failed = read.flatMap((one) => (one.status === "rejected" ? [one.reason as unknown] : []));
    if (failed.length > 0) throw new AggregateError(failed, "keys of issuers cannot be read");
  }

  #stands({ issuer, judgedBy, keys, key, until }: Remembered): boolean {
    const declared = this.#look().get(issuer)?.byAudience;
    return (
      judgedBy.every(([audience, declaration]) => declared?.get(audience) === declaration) &&
      this.#options.clock.now() < until &&
      keys.stillHas(key)
    );
  }

  /** @throws ApiError 401, 503 */
  async #judge(token: string, sha256: string): Promise<Principal> {
    const said = readToken(token);
    if (typeof said === "string") throw refusedToken(said);
    const accepted = this.#look().get(said.issuer);
    if (this.#snapshot === null) throw noSnapshot();
    if (accepted === undefined) throw refusedToken("issuer");
    // An organization for other audiences may name an address of keys that does not answer: this token must not wait for it.
    const audiences = audiencesOf(said.claims);
    const addressed = accepted.acceptances.filter(({ identity }) =>
      identity.audiences.some((audience) => audiences.has(audience)),
    );
    if (addressed.length === 0) throw refusedToken("audience");
    const verified = new Map<IssuerKeys, VerifiedToken | TokenFault>();
    const faults: TokenFault[] = [];
    for (const acceptance of addressed) {
      const { keys } = acceptance;
      const result = verified.get(keys) ?? (await this.#verify(token, said, acceptance));
      verified.set(keys, result);
      const person = typeof result === "string" ? result : decide(acceptance, said.issuer, result);
      if (typeof person === "string") {
        faults.push(person);
        // A person whom a rule names belongs to that organization alone, also while it is suspended.
        if (person === "suspended") break;
      } else if (typeof result !== "string" && isAlsoAnothers(acceptance, addressed, result)) {
        throw refusedToken("ambiguous");
      } else if (typeof result !== "string") {
        const { until, key } = result;
        const principal = await this.#options.directory.person(person);
        // Their name is written now: this token writes it no more, so tokens with different names do not overwrite in turns.
        const known = { ...person, name: null };
        const judgedBy = Array.from(
          audiences,
          (audience) => [audience, accepted.byAudience.get(audience)] as const,
        );
        const remembered = { issuer: said.issuer, judgedBy, keys, key, until, person: known };
        const weight = Math.max(1, Math.ceil(judgedBy.length / LIGHT_AUDIENCES));
        this.#remembered.set(person.organizationId, sha256, remembered, weight);
        return principal;
      }
    }
    throw refusedToken(furthest(faults));
  }

  /** @throws ApiError 429, 503 */
  async #verify(
    token: string,
    said: UnverifiedToken,
    acceptance: Acceptance,
  ): Promise<VerifiedToken | TokenFault> {
    const { keys } = acceptance;
    const set = await keys.keysFor(said.header);
    if (set === "away") throw issuerAway(keys.failure);
    if (set === "kid") return set;
    const release = await this.#turnFor(turnOwner(acceptance));
    try {
      return await verifyToken(token, said, set, this.#options.clock.now());
    } finally {
      release();
    }
  }

  /** @throws ApiError 429 where too many wait already, 503 after four seconds. */
  async #turnFor(owner: string): Promise<() => void> {
    const turn = await this.#turns.take(owner, AbortSignal.timeout(MOST_WAIT_MS)).catch((cause: unknown) => {
      throw new ApiError("unavailable", "Tokens cannot be verified right now. Try again in a moment.", {
        retryAfterSeconds: 1,
        cause,
      });
    });
    if (typeof turn !== "string") return turn;
    throw new ApiError("rate_limited", "Too many tokens wait already to be verified.", {
      retryAfterSeconds: 1,
    });
  }

  /** Returns what the present snapshot accepts, by issuer. */
  #look(): ReadonlyMap<string, Accepted> {
    const snapshot = this.#options.snapshot();
    if (snapshot === this.#snapshot || snapshot === null) return this.#accepted;
    this.#snapshot = snapshot;
    const { fetchJson, ages = steadyClock } = this.#options;
    const places = new Map<string, IssuerKeys>();
    const keysOf = ({ issuer, jwksUrl, allowCidrs, allowPorts }: IdentityEntry): IssuerKeys => {
      const place = { issuer, jwksUrl, allowCidrs, allowPorts };
      const text = JSON.stringify(place);
      const keys = places.get(text) ?? this.#keys.get(text) ?? new IssuerKeys(place, fetchJson, ages);
      places.set(text, keys);
      return keys;
    };
    const declared = snapshot.routing.organizations.flatMap((organization) => {
      const { identity } = organization;
      return identity === undefined ? [] : [{ organization, identity, keys: keysOf(identity) }];
    });
    const byIssuer = Map.groupBy(declared, ({ identity }) => identity.issuer);
    this.#accepted = new Map(
      Array.from(byIssuer, ([issuer, acceptances]) => {
        const sorted = acceptances.toSorted(byPlace);
        const byAudience = declarationsOf(sorted, this.#accepted.get(issuer)?.byAudience);
        return [issuer, { acceptances: sorted, byAudience }];
      }),
    );
    this.#keys = places;
    return this.#accepted;
  }
}

/** A tenant takes one turn with others, however many issuers its organizations declare, and in however many ways. */
const turnOwner = ({ organization: { source, isTenants }, keys }: Acceptance): string =>
  isTenants === true ? `namespace ${source.namespace}` : keys.name;

/** Orders by namespace, then by name, tenants last: a tenant must not come before the platform by its name. */
function byPlace(one: Acceptance, other: Acceptance): number {
  const [a, b] = [one.organization.source, other.organization.source];
  const isTenants = ({ organization }: Acceptance) => organization.isTenants === true;
  if (isTenants(one) !== isTenants(other)) return isTenants(one) ? 1 : -1;
  if (a.namespace !== b.namespace) return a.namespace < b.namespace ? -1 : 1;
  return a.name < b.name ? -1 : 1;
}

/** Returns what is declared for each audience: the object of `before` where nothing changed. */
function declarationsOf(
  acceptances: readonly Acceptance[],
  before: ReadonlyMap<string, Declaration> | undefined,
): ReadonlyMap<string, Declaration> {
  const byAudience = new Map<string, string>();
  for (const acceptance of acceptances) {
    const digest = digestOf(acceptance);
    for (const audience of new Set(acceptance.identity.audiences))
      byAudience.set(audience, `${byAudience.get(audience) ?? ""}${digest}`);
  }
  return new Map(
    Array.from(byAudience, ([audience, digests]) => {
      const known = before?.get(audience);
      return [audience, known?.digests === digests ? known : { digests }];
    }),
  );
}

const digestOf = ({ organization: { id, suspended, source, isTenants }, identity }: Acceptance): string =>
  hash("sha256", JSON.stringify([id, suspended, source.namespace, isTenants === true, identity]));

/**
 * Whether another tenant's organization would also accept a token that a tenant's organization accepts. Then neither has it:
 * the sender meant one of them, and the other would read what they send.
 */
const isAlsoAnothers = (
  { organization: { source, isTenants } }: Acceptance,
  addressed: readonly Acceptance[],
  { claims }: VerifiedToken,
): boolean =>
  isTenants === true &&
  addressed.some(
    (other) =>
      other.organization.source.namespace !== source.namespace &&
      other.organization.isTenants === true &&
      ruleFor(other.identity.rules, claims) !== undefined,
  );

/** Returns the person that an organization's rules make of a token's holder, or why they make none. */
function decide(
  { organization, identity }: Acceptance,
  issuer: string,
  { claims, subject }: VerifiedToken,
): Person | TokenFault {
  const rule = ruleFor(identity.rules, claims);
  if (rule === undefined) return "rule";
  if (organization.suspended) return "suspended";
  return personOf(organization, { issuer, subject, name: nameIn(claims) }, rule);
}
