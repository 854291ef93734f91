import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Condition, ObjectStatus } from "../plan/conditions.ts";
import type { Declared } from "../plan/objects.ts";
import { type Call, type KubeApi, KubeError } from "./client.ts";
import type { CustomObject, CustomObjects } from "./custom-objects.ts";
import { StatusWriter } from "./status-writer.ts";

const object: Declared = {
  kind: "ModelRoute",
  namespace: "n",
  name: "m",
  uid: "u",
  generation: 1,
  creationTimestamp: 1,
  createdAt: 1,
  spec: {},
  faults: [],
};
const condition = (type: Condition["type"], status: Condition["status"]): Condition => ({
  type,
  status,
  reason: "SecretNotFound",
  message: "",
  observedGeneration: 1,
});
/** Of an object that lacks a Secret: in a minute it will be stalled. */
const lacking: ObjectStatus = {
  object,
  verdict: {
    object,
    accepted: [],
    resolved: [{ reason: "SecretNotFound", path: "spec", message: "" }],
    serves: null,
    notes: [],
    facts: {},
  },
  observedGeneration: 1,
  conditions: [condition("ResolvedRefs", "False"), condition("Stalled", "True")],
  facts: {},
};

/** Writes it to an API server that answers as told. */
async function writing(
  stored: unknown,
  answer: () => Promise<void>,
  judge: () => Promise<unknown>,
  refused: (status: ObjectStatus, words: string) => void = () => {},
): Promise<void> {
  let status = stored;
  const objects = {
    get: (): CustomObject => ({ declared: object, status, secretRefs: [], isLeftOut: false }),
    accept: (_kind: string, patched: { status: unknown }) => ({ status } = patched),
  };
  const writer = new StatusWriter({
    api: {
      call: async ({ body }: Call) => {
        await answer();
        return body;
      },
    } as unknown as KubeApi,
    objects: objects as unknown as CustomObjects,
    permit: () => {},
    now: () => Date.now(),
    written: () => {},
    contested: () => {},
    refused,
    failed: () => {},
  });
  const stop = new AbortController();
  const running = writer.run(stop.signal);
  writer.want([lacking]);
  try {
    await judge();
  } finally {
    stop.abort();
    await running;
  }
}

test("a write that failed is tried again soon, also where the status is looked at again much later", async () => {
  let writes = 0;
  await writing(
    undefined,
    async () => {
      writes += 1;
      if (writes === 1) throw new KubeError(500, "InternalError", "");
    },
    async () => await expect.poll(() => writes).toBe(2),
  );
});

test("a status that the API server does not take is told once for each generation, and tried again", async () => {
  let writes = 0;
  const told: string[] = [];
  await writing(
    undefined,
    async () => {
      writes += 1;
      throw new KubeError(422, "Invalid", "spec: invalid data");
    },
    async () => await expect.poll(() => writes, { timeout: 5000 }).toBe(3),
    (status, words) => told.push(`${status.object.name}: ${words}`),
  );
  expect(told).toEqual(["m: spec: invalid data"]);
});

test("of one object one status is written at a time, however long the API server takes", async () => {
  // Half a second of its minute is left.
  const transition = new Date(Date.now() - 59_500).toISOString();
  const known = { conditions: [{ ...condition("ResolvedRefs", "False"), lastTransitionTime: transition }] };
  let [writes, atOnce, most] = [0, 0, 0];
  await writing(
    known,
    async () => {
      writes += 1;
      atOnce += 1;
      most = Math.max(most, atOnce);
      await sleep(1200);
      atOnce -= 1;
    },
    async () => await expect.poll(() => writes).toBe(2),
  );
  expect(most).toBe(1);
});

test("a namespace whose statuses are many keeps no other's waiting", async () => {
  const written: string[] = [];
  const { writer, status } = writerOf({
    call: async () => await sleep(20),
    written: (namespace) => written.push(namespace),
  });
  const stop = new AbortController();
  const running = writer.run(stop.signal);
  const all = Array.from({ length: 500 }, (_, index) => status("evil", `m-${index}`));
  writer.want(all);
  await expect.poll(() => written.length).toBeGreaterThan(0);
  const before = written.length;
  all.push(status("good", "m"));
  writer.want(all);
  await expect.poll(() => written).toContain("good");
  expect(written.indexOf("good") - before, "others before it").toBeLessThan(30);
  stop.abort();
  await running;
});

test("namespaces in which writing hangs keep no other's status waiting", async () => {
  const written: string[] = [];
  let [hanging, most] = [0, 0];
  const { writer, status } = writerOf({
    call: async ({ path, signal }) => {
      if (!path.includes("/evil-")) return;
      most = Math.max(most, (hanging += 1));
      await sleep(60_000, undefined, signal === undefined ? {} : { signal }).finally(() => (hanging -= 1));
    },
    written: (namespace, name) => written.push(`${namespace}/${name}`),
  });
  const stop = new AbortController();
  const running = writer.run(stop.signal);
  const all = Array.from({ length: 96 }, (_, index) => status(`evil-${index % 12}`, `m-${index}`));
  writer.want(all);
  all.push(status("good", "first"));
  writer.want(all);
  await expect.poll(() => written, { timeout: 8_000 }).toEqual(["good/first"]);
  all.push(status("good", "second"));
  writer.want(all);
  await expect.poll(() => written, { timeout: 1_000 }).toEqual(["good/first", "good/second"]);
  expect(most, "writes that hang").toBeLessThanOrEqual(28);
  stop.abort();
  await running;
}, 20_000);

interface Written {
  readonly call: (call: Call) => Promise<void>;
  readonly written: (namespace: string, name: string) => void;
}

interface Patched {
  readonly metadata: { readonly uid: string };
  readonly status: unknown;
}

/** One that writes to an API server which takes as long as `call`, and statuses of objects that this has. */
function writerOf({ call, written }: Written) {
  const known = new Map<string, CustomObject>();
  const status = (namespace: string, name: string): ObjectStatus => {
    const declared = { ...object, namespace, name, uid: `${namespace}/${name}` };
    if (!known.has(declared.uid))
      known.set(declared.uid, { declared, status: undefined, secretRefs: [], isLeftOut: false });
    return { ...lacking, object: declared };
  };
  const writer = new StatusWriter({
    api: {
      call: async (asked: Call) => {
        await call(asked);
        return asked.body;
      },
    } as unknown as KubeApi,
    objects: {
      get: (_kind: string, key: string) => known.get(key),
      accept: (_kind: string, { metadata: { uid }, status: stored }: Patched) => {
        const before = known.get(uid);
        if (before !== undefined) known.set(uid, { ...before, status: stored });
      },
    } as unknown as CustomObjects,
    permit: () => {},
    now: () => Date.now(),
    written: ({ object: { namespace, name } }) => written(namespace, name),
    contested: () => {},
    refused: () => {},
    failed: () => {},
  });
  return { writer, status };
}
