/** Errors about keys and projects that do not exist, or are declared and so changed elsewhere. */
import type { Snapshot } from "../config/snapshot.ts";
import type { ApiKey, KeyOutcome } from "../identity/keys.ts";
import { ApiError } from "../lib/api-error.ts";

/** The same words for a foreign, an unknown and a malformed id. */
export const keyNotFound = () => new ApiError("not_found", "There is no such API key.");
export const projectNotFound = () => new ApiError("not_found", "There is no such project.");

/** @throws ApiError 404 for an unknown key, 400 for one that is or was declared, naming its Organization resource (rule 5.3). */
export function requireDone(outcome: KeyOutcome, organizationId: string, snapshot: Snapshot): ApiKey {
  switch (outcome.kind) {
    case "done":
      return outcome.key;
    case "unknown":
      throw keyNotFound();
    case "declared":
    case "removed": {
      const resource = resourceOf(organizationId, snapshot);
      throw new ApiError(
        "invalid_request",
        outcome.kind === "declared"
          ? `This key is declared in the Organization resource ${resource}; it can be changed or removed only there.`
          : `This key was removed from the Organization resource ${resource}, so it is revoked; it can only be deleted.`,
      );
    }
  }
}

/** The resource that declares a key, where it is changed (rule 11.7); null for one that was made through the API. */
export function declaredIn(key: ApiKey, organizationId: string, snapshot: Snapshot): string | null {
  return key.source === "declared" ? `Organization ${resourceOf(organizationId, snapshot)}` : null;
}

/** `namespace/name` of the resource; its id once nobody declares it. */
export function resourceOf(organizationId: string, snapshot: Snapshot): string {
  const source = snapshot.organization(organizationId)?.source;
  return source === undefined ? organizationId : `${source.namespace}/${source.name}`;
}
