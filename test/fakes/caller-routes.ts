/** Each family's errors, a free and an admin route: they say who came. */
import { callerOf, type Routes } from "../../dataplane/http/route.ts";

export const callerRoutes: Routes = (app) => {
  for (const url of ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
    app.post(url, { config: { access: "inference" } }, async (request) => callerOf(request));
  app.get("/v1/organization/credits", { config: { access: "admin" } }, async (request) => callerOf(request));
  app.post("/v1/organization/projects", { config: { access: "admin" } }, async (request) =>
    callerOf(request),
  );
};
