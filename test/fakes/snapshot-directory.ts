import type { Snapshot } from "../../dataplane/config/snapshot.ts";
import { effectiveScopes } from "../../dataplane/billing/scopes.ts";
import type { Person } from "../../dataplane/identity/person.ts";
import type { Directory, Principal } from "../../dataplane/identity/principal.ts";

/**
 * Finds keys in the snapshot alone: what a test without Postgres runs on. Keys made through the admin API are not
 * in it; the data plane asks Postgres (identity/directory.ts).
 */
export class SnapshotDirectory implements Directory {
  readonly #snapshot: () => Snapshot | null;
  readonly #principals = new WeakMap<Snapshot, ReadonlyMap<string, Principal>>();

  constructor(snapshot: () => Snapshot | null) {
    this.#snapshot = snapshot;
  }

  find(sha256: string): Promise<Principal | null> {
    const snapshot = this.#snapshot();
    if (snapshot === null) return Promise.resolve(null);
    let principals = this.#principals.get(snapshot);
    if (principals === undefined) {
      principals = principalsOf(snapshot);
      this.#principals.set(snapshot, principals);
    }
    return Promise.resolve(principals.get(sha256) ?? null);
  }

  /** It remembers nothing. */
  knows(): boolean {
    return false;
  }

  /** Of people it takes what the rules say. */
  person({ id, organizationId, kind, project, limits, name }: Person): Principal {
    const scopes = effectiveScopes({ id, limits, defaults: null }, { id: null, limits: null });
    const owner = { keyId: id, keyName: name ?? "", organizationId, projectId: project };
    return { kind, ...owner, keyEpoch: 0, expiresAt: null, limits: scopes };
  }

  findQueued(sha256: string): Promise<Principal | null> {
    return this.find(sha256);
  }

  async findAgain(known: Principal): Promise<Principal> {
    return known;
  }
}

function principalsOf(snapshot: Snapshot): ReadonlyMap<string, Principal> {
  const principals = new Map<string, Principal>();
  for (const organization of snapshot.routing.organizations) {
    if (organization.suspended) continue;
    const shared = { organizationId: organization.id, keyEpoch: 0, expiresAt: null, limits: [] };
    for (const key of organization.apiKeys) {
      const owner = { keyId: `apikey_${key.sha256.slice(0, 24)}`, keyName: key.name, projectId: key.project };
      principals.set(key.sha256, { kind: "inference", ...owner, ...shared });
    }
    for (const key of organization.adminKeys) {
      const owner = { keyId: `apikey_${key.sha256.slice(0, 24)}`, keyName: key.name, projectId: null };
      principals.set(key.sha256, { kind: "admin", ...owner, ...shared });
    }
  }
  return principals;
}
