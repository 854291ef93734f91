import { describe, expect, test } from "vitest";
import { ownPlaces, placesOf, readPlace, readPlaces } from "./own-places.ts";

describe("what is ours", () => {
  const stores = [
    ["postgres://u:p%40ss@db.example:6432/gapura?sslmode=require", 5432],
    ["redis-sentinel://u:p@s1:26379,s2:26379/main/0?sentinelPassword=p", 6379],
    ["redis-cluster://u:p@c1:7000,c2", 6379],
    [undefined, 6379],
    ["postgres://u@/gapura?host=/run/postgres", 5432],
  ] as const;

  test("in a cluster: the pod, the API server, the stores and what the chart names, on every port", () => {
    const places = ownPlaces({
      stores,
      more: readPlaces("gapura.ns.svc, gapura-pods.ns.svc,10.0.0.5:6443") ?? [],
      apiServer: "10.96.0.1",
    });
    expect(places).toEqual([
      { host: "0.0.0.0", port: null },
      { host: "10.96.0.1", port: null },
      { host: "db.example", port: null },
      { host: "s1", port: null },
      { host: "s2", port: null },
      { host: "c1", port: null },
      { host: "c2", port: null },
      { host: "gapura.ns.svc", port: null },
      { host: "gapura-pods.ns.svc", port: null },
      { host: "10.0.0.5", port: 6443 },
    ]);
  });

  test("on one machine: stores with their ports, and nothing else", () => {
    const places = ownPlaces({ stores, more: [], apiServer: "" });
    expect(places).toEqual([
      { host: "db.example", port: 6432 },
      { host: "s1", port: 26379 },
      { host: "s2", port: 26379 },
      { host: "c1", port: 7000 },
      { host: "c2", port: 6379 },
    ]);
  });

  test("is read from every form of an address", () => {
    expect(placesOf("postgres://[fd00::5]/x", 5432)).toEqual([{ host: "fd00::5", port: 5432 }]);
    expect(placesOf("postgres://%2Frun%2Fpg/x", 5432)).toEqual([]);
    expect(readPlace("fd00::5")).toEqual({ host: "fd00::5", port: null });
    expect(readPlace("not a host")).toBe(null);
  });
});
