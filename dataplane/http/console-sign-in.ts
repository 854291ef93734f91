/**
 * Where people of an organization sign in to the console (rule 11.2). Whoever names the organization may read it, as on any
 * sign-in page. Nothing lists organizations; an unknown organization and one without sign-in get the same answer.
 */
import type { Snapshot } from "../config/snapshot.ts";
import { ApiError } from "../lib/api-error.ts";
import type { Routes } from "./route.ts";

/** The sign-in of an organization; null: it is unknown or has none. */
function signInOf(snapshot: Snapshot, name: string) {
  const organization = snapshot.organization(name);
  const identity = organization?.identity;
  if (organization === undefined || identity?.console === undefined) return null;
  return { organizationId: organization.id, issuer: identity.issuer, client: identity.console };
}

/** Form of an origin in a Content-Security-Policy: no character ends a source or a directive. */
const ORIGIN = /^https:\/\/[-._~%A-Za-z0-9]+(:\d{1,5})?$/;

/** Origins that the browser calls while people of the organization sign in and stay signed in; empty without sign-in. */
export function signInOrigins(snapshot: Snapshot, name: string): readonly string[] {
  const found = signInOf(snapshot, name);
  if (found === null || !URL.canParse(found.issuer)) return [];
  const origins = new Set([new URL(found.issuer).origin, ...found.client.origins]);
  return [...origins].filter((origin) => ORIGIN.test(origin));
}

export const consoleSignInRoutes: Routes = (app, services) => {
  const { unknownCallers } = services;
  app.get<{ Params: { id: string } }>(
    "/v1/organizations/:id/sign_in",
    { config: { access: "none" } },
    (request, reply) => {
      const found = signInOf(services.snapshot(), request.params.id);
      if (found === null)
        throw unknownCallers.refusal(
          request.socket.remoteAddress,
          new ApiError("not_found", "There is no sign-in for such an organization."),
        );
      const { organizationId, issuer, client } = found;
      return reply.header("cache-control", "no-store").send({
        type: "console_sign_in",
        organization_id: organizationId,
        issuer,
        client_id: client.clientId,
        scopes: ["openid", ...client.scopes.filter((scope) => scope !== "openid")],
        audience: client.audience,
        resource: client.resource,
      });
    },
  );
};
