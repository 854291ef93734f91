/** `GET /v1/key`: what the holder of an inference key may know of it (rule 9.5). Free. */
import type { Keys } from "../../identity/keys.ts";
import { isoSeconds, keyNotFound } from "../admin/requests.ts";
import { callerOf, type Routes } from "../route.ts";

export const keyRoutes =
  (keys: Pick<Keys, "get">): Routes =>
  (app) => {
    app.get("/v1/key", { config: { access: "inference" } }, async (request) => {
      const { organizationId, keyId } = callerOf(request);
      const key = await keys.get({ organizationId, projectId: null }, keyId);
      // Deleted a moment ago.
      if (key === null) throw keyNotFound();
      return {
        object: "key",
        id: key.id,
        name: key.name,
        project_id: key.projectId,
        created_at: isoSeconds(key.createdAt),
        expires_at: key.expiresAt === null ? null : isoSeconds(key.expiresAt),
      };
    });
  };
