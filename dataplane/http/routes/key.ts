/** `GET /v1/key`: what the holder of an inference key or a token may know of it (rule 9.5). Free. */
import type { Keys } from "../../identity/keys.ts";
import { isoExact, isoSeconds } from "../../lib/unix-time.ts";
import { limitsObject, standingsOfKeys, type StandingNeeds } from "../admin/limits.ts";
import { keyNotFound } from "../key-outcomes.ts";
import { callerOf, type Routes } from "../route.ts";

export const keyRoutes =
  (keys: Pick<Keys, "own">, needs: StandingNeeds): Routes =>
  (app) => {
    app.get("/v1/key", { config: { access: "inference" } }, async (request) => {
      const caller = callerOf(request);
      const key = await keys.own(caller);
      // The key was deleted a moment ago.
      if (key === null) throw keyNotFound();
      const standings = await standingsOfKeys(needs, caller.organizationId, [key.id]);
      return {
        object: "key",
        id: key.id,
        name: key.name,
        project_id: key.projectId,
        created_at: isoSeconds(key.createdAt),
        expires_at: key.expiresAt === null ? null : isoExact(key.expiresAt),
        limits: limitsObject(key.limits),
        standing: standings(key.id),
      };
    });
  };
