import { expect, test, vi } from "vitest";
import type { Call, KubeApi } from "./client.ts";
import { Events, type EventFacts } from "./events.ts";

/** What the API server takes: RFC 1123 subdomains, and notes of at most 1024 bytes. */
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

async function written(name: string, note: string) {
  const calls: Call[] = [];
  const events = new Events({
    api: { call: async (call: Call) => calls.push(call) } as unknown as KubeApi,
    podName: "operator-0",
    permit: () => {},
    now: () => 0,
    failed: (error) => expect.unreachable(String(error)),
  });
  const object = { kind: "ModelRoute", namespace: "ml", name, uid: "u" };
  events.tell({ object, type: "Warning", reason: "Invalid", action: "Compile", note });
  await expect.poll(() => calls.length).toBe(1);
  return calls[0]?.body as { metadata: { name: string }; regarding: { name: string }; note: string };
}

test.each([
  ["short", "m"],
  ["long", "m".repeat(253)],
  ["cut at a dot", `${"m".repeat(199)}.${"b".repeat(40)}`],
  ["cut behind a hyphen", `${"m".repeat(197)}---${"b".repeat(40)}`],
])("an Event of an object whose name is %s has a name that the API server takes", async (_title, name) => {
  const { metadata, regarding } = await written(name, "note");
  expect(metadata.name).toMatch(SUBDOMAIN);
  expect(metadata.name.length).toBeLessThanOrEqual(253);
  expect(regarding.name).toBe(name);
});

test.each([
  ["ASCII", "x".repeat(5000)],
  ["two bytes each", "é".repeat(900)],
  ["three bytes each", "あ".repeat(900)],
  ["four bytes each", `x${"😀".repeat(500)}`],
])(
  "a note of %s is cut where the API server takes it, and never inside a character",
  async (_title, note) => {
    const cut = (await written("m", note)).note;
    expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(1024);
    expect(Buffer.byteLength(cut)).toBeGreaterThan(990);
    expect(note.startsWith(cut)).toBe(true);
    expect(cut.isWellFormed()).toBe(true);
  },
);

test("a burst in one namespace drops its own Events, and those of others take turns with it", async () => {
  const isUp = Promise.withResolvers<void>();
  const written: string[] = [];
  const failed = vi.fn();
  const events = new Events({
    api: {
      call: async ({ path, body }: Call) => {
        await isUp.promise;
        const { regarding } = body as { regarding: { name: string } };
        written.push(`${path.split("/")[5]}/${regarding.name}`);
        if (regarding.name === "m3") throw new Error("its namespace is gone");
      },
    } as unknown as KubeApi,
    podName: "operator-0",
    permit: () => {},
    now: () => 0,
    failed,
  });
  const factsOf = (namespace: string, name: string): EventFacts => ({
    object: { kind: "ModelRoute", namespace, name, uid: "u" },
    type: "Warning",
    reason: "Invalid",
    action: "Compile",
    note: "note",
  });
  for (let index = 0; index < 1_000; index += 1) events.tell(factsOf("loud", `m${index}`));
  for (const name of ["first", "second"]) events.tell(factsOf("quiet", name));
  isUp.resolve();
  // One was under way; of the 200 that may wait, two are the other namespace's.
  await expect.poll(() => written.length).toBe(201);
  expect(written.slice(0, 5)).toEqual(["loud/m0", "loud/m1", "quiet/first", "loud/m2", "quiet/second"]);
  expect(written.at(-1)).toBe("loud/m198");
  expect(failed).toHaveBeenCalledOnce();
  events.tell(factsOf("quiet", "third"));
  await expect.poll(() => written.at(-1)).toBe("quiet/third");
});
