import { describe, expect, test } from "vitest";
import type { ConfigStatus, Routing } from "../../dataplane/config/schema.ts";
import { knownOwners } from "./owners.ts";
import type { Published } from "./prior.ts";

const published = (owners?: Routing["owners"]): Published => ({
  routing: {
    schemaVersion: 1,
    serial: 5,
    routes: [],
    policies: {},
    organizations: [],
    objects: [],
    ...(owners === undefined ? {} : { owners }),
  },
  credentials: {},
});
const pod = (serial: number, owners?: Readonly<Record<string, string>>): ConfigStatus => ({
  hash: null,
  serial,
  podUid: `pod-${serial}`,
  accepts: [1],
  rejected: null,
  objects: [],
  ...(owners === undefined
    ? {}
    : { owners: Object.entries(owners).map(([id, namespace]) => ({ id, namespace })) }),
});
const known = (given: Published | null, ...pods: (ConfigStatus | null)[]) =>
  Object.fromEntries(knownOwners(given, pods));

describe("owners of ids that nobody declares", () => {
  test.for<{ title: string; given: Published | null; pods: (ConfigStatus | null)[]; is: object }>([
    { title: "nothing is known on the first day", given: null, pods: [], is: {} },
    {
      title: "without pods the snapshot remembers",
      given: published({ a: "x" }),
      pods: [null],
      is: { a: "x" },
    },
    {
      title: "a pod that has not read them yet says nothing",
      given: published({ a: "x" }),
      pods: [pod(5)],
      is: { a: "x" },
    },
    {
      title: "a pod with an older snapshot adds, and takes nothing away",
      given: published({ a: "x" }),
      pods: [pod(4, { b: "y" })],
      is: { a: "x", b: "y" },
    },
    {
      title: "what a pod with the newest snapshot does not name was released",
      given: published({ a: "x", b: "y" }),
      pods: [pod(5, { b: "y" })],
      is: { b: "y" },
    },
    {
      title: "Postgres is right where the snapshot is not",
      given: published({ a: "x" }),
      pods: [pod(5, { a: "z" })],
      is: { a: "z" },
    },
  ])("$title", ({ given, pods, is }) => {
    expect(known(given, ...pods)).toEqual(is);
  });
});
