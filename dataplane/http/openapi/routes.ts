/** `GET /openapi.json`: the service's description of itself, open to everybody. */
import type { Routes } from "../route.ts";
import { openApiDocument } from "./document.ts";

export const openApiRoutes: Routes = (app) => {
  // Bytes: of a text each connection that takes it slowly would hold a copy.
  const bytes = Buffer.from(JSON.stringify(openApiDocument()));
  app.get("/openapi.json", { config: { access: "none" } }, (_request, reply) =>
    reply.type("application/json; charset=utf-8").send(bytes),
  );
};
