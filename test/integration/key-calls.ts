/** What tests of keys ask for: of organization a's admin API, on both of its faces, and with the keys that it makes. */
import type { AdminWorld } from "./admin-world.ts";

export const ORGANIZATION = "/v1/organizations/api_keys";
export const PROJECT = "/v1/organization/projects/default/api_keys";

/** A list, as both faces write it. */
export interface Listed {
  readonly data: readonly { readonly id: string; readonly name: string }[];
  readonly has_more: boolean;
  readonly first_id: string | null;
  readonly last_id: string | null;
}

export function keyCalls(world: () => AdminWorld) {
  const admin = (method: string, path: string, body?: unknown, plane = 0) =>
    world().call(world().a.admin, method, path, { ...(body === undefined ? {} : { body }), plane });
  const make = async (name: string): Promise<{ id: string; key: string }> =>
    (await admin("POST", ORGANIZATION, { name })).body as unknown as { id: string; key: string };
  const ask = (key: string, plane: number) =>
    world().call(key, "POST", "/v1/chat/completions", {
      body: { model: "m-chat", messages: [{ role: "user", content: "Hello" }] },
      plane,
    });
  const models = (key: string, plane: number) => world().call(key, "GET", "/v1/models", { plane });
  /** The statuses that a key gets on both planes, from a free and from a billed endpoint. */
  const statuses = async (key: string) =>
    (await Promise.all([0, 1].flatMap((plane) => [models(key, plane), ask(key, plane)]))).map(
      ({ status }) => status,
    );
  const list = async (path: string, key = world().a.admin) =>
    (await world().call(key, "GET", path)).body as unknown as Listed;
  /** What a key's holder is told of it. */
  const own = (key: string, plane = 0) => world().call(key, "GET", "/v1/key", { plane });
  return { admin, make, ask, models, statuses, list, own };
}
