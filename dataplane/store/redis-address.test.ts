import { expect, test } from "vitest";
import { checkRedisAddress, readClusterAddress, readRedisAddress } from "./redis-address.ts";

test("an address of sentinels: hosts, master, login and database", () => {
  expect(
    readRedisAddress("redis-sentinel://ga%40pura:p%3A:s@s1:5000,s2,[fd00::1]:26380/main%2F1/3"),
  ).toMatchObject({
    sentinels: [
      { host: "s1", port: 5_000 },
      { host: "s2", port: 26_379 },
      { host: "fd00::1", port: 26_380 },
    ],
    name: "main/1",
    username: "ga@pura",
    password: "p::s",
    db: 3,
    failoverDetector: true,
  });
});

test("a password without a user, no login, no database", () => {
  expect(readRedisAddress("redis-sentinel://:secret@s1/main")).toMatchObject({ password: "secret" });
  const bare = readRedisAddress("redis-sentinel://s1/main");
  for (const absent of ["username", "password", "db", "tls", "sentinelPassword"])
    expect(bare).not.toHaveProperty(absent);
});

test("with s both the sentinels and the data nodes are asked by TLS", () => {
  expect(readRedisAddress("rediss-sentinel://s1/main")).toMatchObject({
    tls: {},
    enableTLSForSentinelMode: true,
    sentinelTLS: {},
  });
});

test("one server is the library's to read, a socket is a path", () => {
  expect(readRedisAddress("redis://u:p@host:1/2")).toBeNull();
  expect(readRedisAddress("rediss://host")).toBeNull();
  expect(readRedisAddress("unix:///run/a%20b/redis.sock")).toEqual({ path: "/run/a b/redis.sock" });
});

test("an address of a cluster: some of its nodes, and the login of all", () => {
  expect(readClusterAddress("redis-cluster://ga%40pura:p%3A:s@c1:7000,c2,[fd00::1]:6380")).toEqual({
    nodes: [
      { host: "c1", port: 7_000 },
      { host: "c2", port: 6_379 },
      { host: "fd00::1", port: 6_380 },
    ],
    login: { username: "ga@pura", password: "p::s" },
  });
  expect(readClusterAddress("rediss-cluster://c1/")).toEqual({
    nodes: [{ host: "c1", port: 6_379 }],
    login: { tls: {} },
  });
  expect(readClusterAddress("redis://c1")).toBeNull();
});

test.each(["redis-cluster://", "redis-cluster://c1/1", "redis-cluster://c1,", "redis-cluster://c1?db=1"])(
  "%j is no cluster",
  (url) => {
    expect(() => checkRedisAddress(url)).toThrow(/must be redis:\/\/.*redis-cluster:\/\/USER:PASS@HOST:6379/);
  },
);

test.each([
  "",
  "http://x",
  "redis-sentinel://s1",
  "redis-sentinel://s1/",
  "redis-sentinel:///main",
  "redis-sentinel://s1,/main",
  "redis-sentinel://s1:99999/main",
  "redis-sentinel://s1/main/x",
])("%j is refused with what there is instead", (url) => {
  expect(() => readRedisAddress(url)).toThrow(/must be redis:\/\/.*redis-sentinel:\/\/USER:PASS@HOST:26379/);
});

test("what is refused is not repeated", () => {
  expect(() => readRedisAddress("redis-sentinel://u:topsecret%zz@s1/main")).toThrow(
    /^holds a % that begins no escape/,
  );
});
