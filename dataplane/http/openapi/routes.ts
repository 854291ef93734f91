/** `GET /openapi.json`: the service's description of itself, open to everybody. */
import type { Routes } from "../route.ts";
import { openApiDocument } from "./document.ts";

export const openApiRoutes: Routes = (app) => {
  const text = JSON.stringify(openApiDocument());
  app.get("/openapi.json", { config: { access: "none" } }, (_request, reply) =>
    reply.type("application/json").send(text),
  );
};
