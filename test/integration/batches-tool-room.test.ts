/** Rule 4.5 over the whole way of an item: tool calls that have no room hold up nothing else, and no answer is spent on them. */
import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ToolRoom } from "../../dataplane/batches/worker/tool-room.ts";
import { text, toolCall } from "../fakes/upstream/script.ts";
import { toolPolicy } from "../fakes/inference.ts";
import { openGround, type Ground } from "./batches-ground.ts";
import { BatchPlane, bodyOf, messageRequests } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";

const ITEMS = 20;
let ground: Ground;
let plane: BatchPlane;
let hasRoom = false;
let searches = 0;
const told: number[] = [];

const toolRoom = new ToolRoom({ admit: async () => hasRoom, sleep: () => sleep(20) });

beforeAll(async () => {
  ground = await openGround();
  plane = await BatchPlane.open(ground.stores, {
    upstreamUrl: ground.upstream.url,
    toolRoom,
    records: { add: ({ status }) => void told.push(status) },
    runTool: async (_name, _input, { organization, policy }) => {
      await toolRoom.admit(organization.id, policy.callsPerMinute);
      searches += 1;
      return { kind: "hits", hits: [], posts: 0, profiles: 0 };
    },
  });
  await makeOrganization(plane.pool, "org_acme", 10_000_000_000n);
});
afterAll(async () => {
  expect(await plane.broken()).toEqual([]);
  await plane.close();
  await ground.close();
});

const create = async (requests: readonly object[]): Promise<string> => {
  const { body } = await plane.json("POST", "/v1/messages/batches", { requests });
  return `/v1/messages/batches/${String(body["id"])}`;
};

test("as many items begin as their calls have room for, others run meanwhile, and each asks its model twice", async () => {
  const { upstream } = ground;
  const search = toolCall("web_search", { query: "gates" });
  let asked = 0;
  upstream.model("upstream-messages", (_read, logged) => {
    if (!logged.text.includes("What is new?")) return text("fine");
    asked += 1;
    return logged.text.includes("tool_result") ? text("found") : search;
  });
  const params = bodyOf.messages("What is new?", {
    tools: [{ type: "web_search_20250305", name: "web_search" }],
  });
  const searching = await create(Array.from({ length: ITEMS }, (_, n) => ({ custom_id: `s${n}`, params })));
  const first = Math.floor((toolPolicy.callsPerMinute * 0.8) / toolPolicy.parallelCalls);
  expect(first).toBeLessThan(ITEMS);
  await expect.poll(() => asked).toBe(first);
  // Another batch of the same organization is not held up.
  await plane.ended(await create(messageRequests(30)));
  expect(asked).toBe(first);
  const running = sql.fragment`from batches where id = ${searching.split("/").at(-1) ?? ""} and state = 'in_progress'`;
  expect(await plane.count(running)).toBe(1);
  hasRoom = true;
  const ended = await plane.ended(searching);
  expect(ended["request_counts"]).toMatchObject({ succeeded: ITEMS, errored: 0 });
  expect({ asked, searches }).toEqual({ asked: 2 * ITEMS, searches: ITEMS });
  // Of each item's runs the one that began is told, and of the other batch's 30.
  expect(told).toEqual(Array.from({ length: ITEMS + 30 }, () => 200));
  for (const line of await plane.lines(`${searching}/results`))
    expect(JSON.stringify(line)).not.toContain("too_many_requests");
});
