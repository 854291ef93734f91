/** Which paths are served, with which methods and for whom: what is answered where a path or its method is not. */
import type { FastifyReply, FastifyRequest, RouteOptions } from "fastify";
import { ApiError } from "../lib/api-error.ts";
import { absence } from "./absent.ts";
import { pathOf } from "./error-style.ts";
import type { ServedRoute } from "./route.ts";

export class ServedPaths {
  readonly #routes: ServedRoute[] = [];
  /** Methods by the URL of each route. */
  readonly #methods = new Map<string, Set<string>>();

  /** Every route, in the order of registration. */
  get routes(): readonly ServedRoute[] {
    return this.#routes;
  }

  /** @throws Error when the route does not say whom it serves */
  add({ config, method, url }: RouteOptions): void {
    const access = config?.access;
    if (access === undefined) throw new Error(`${url} does not say which key it needs`);
    const methods = this.#methods.get(url) ?? new Set<string>();
    for (const one of [method].flat()) {
      methods.add(one);
      this.#routes.push({ method: one, url, access });
    }
    this.#methods.set(url, methods);
  }

  /** Returns 405 where other methods are served, whose names go into the header `allow`, else 404 (rule 1.4). */
  unserved(request: FastifyRequest, reply: FastifyReply): ApiError {
    const path = pathOf(request.url);
    const allowed = this.#allowed(path).join(", ");
    if (allowed === "") return new ApiError("not_found", absence(request.method, path));
    reply.header("allow", allowed);
    return new ApiError("method_not_allowed", `${request.method} is not allowed here; allowed: ${allowed}.`);
  }

  #allowed(path: string): string[] {
    const found = new Set<string>();
    const clean = path.length > 1 ? path.replace(/\/$/, "") : path;
    for (const [pattern, methods] of this.#methods) {
      const source = pattern
        .replace(/[.+?^${}()|[\]\\]/g, "\\$&")
        .replace(/:[A-Za-z_]+/g, "[^/]+")
        .replace("*", ".+");
      if (new RegExp(`^${source}$`).test(clean)) for (const method of methods) found.add(method);
    }
    return [...found].sort();
  }
}
