import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { readAccount, readKubeconfig } from "./access.ts";

let folder = "";
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "gapura-access-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const base64 = (text: string) => Buffer.from(text).toString("base64");

/** Writes a kubeconfig of one cluster and one user, and reads it. */
async function read(user: object, cluster: object = {}, more: object = {}) {
  const file = join(folder, "config");
  const config = {
    "current-context": "here",
    contexts: [{ name: "here", context: { cluster: "one", user: "me" } }],
    clusters: [{ name: "one", cluster: { server: "https://api.example/", ...cluster } }],
    users: [{ name: "me", user }],
    ...more,
  };
  await writeFile(file, JSON.stringify(config));
  return readKubeconfig(file, { PATH: process.env["PATH"], GIVEN: "from-outside" });
}

describe("a kubeconfig", () => {
  test("names an authority, a client certificate and a key as files beside it", async () => {
    for (const name of ["ca", "cert", "key"]) await writeFile(join(folder, `${name}.pem`), `the ${name}`);
    const access = await read(
      { "client-certificate": "cert.pem", "client-key": join(folder, "key.pem") },
      { "certificate-authority": "ca.pem", "tls-server-name": "inner.example" },
    );
    expect(access).toEqual({
      url: "https://api.example",
      proxy: null,
      authorization: null,
      tls: { ca: "the ca", cert: "the cert", key: "the key", servername: "inner.example" },
      freshForMs: 60_000,
    });
  });

  test("holds them itself, and goes through a proxy without looking at the server's certificate", async () => {
    const access = await read(
      { "client-certificate-data": base64("c"), "client-key-data": base64("k"), "client-key": "nowhere" },
      { "proxy-url": "http://proxy.example:3128", "insecure-skip-tls-verify": true },
    );
    expect(access).toMatchObject({
      proxy: "http://proxy.example:3128",
      tls: { cert: "c", key: "k", rejectUnauthorized: false },
    });
  });

  test("holds a token, which a token file outdoes, or a name and a password", async () => {
    expect((await read({ token: "one" })).authorization).toBe("Bearer one");
    await writeFile(join(folder, "token"), "two\n");
    expect((await read({ token: "one", tokenFile: "token" })).authorization).toBe("Bearer two");
    const basic = await read({ username: "me", password: "p" });
    expect(basic.authorization).toBe(`Basic ${base64("me:p")}`);
  });

  test("names a plugin, which is given its environment and tells how long its answer counts", async () => {
    const plugin = join(folder, "plugin");
    await writeFile(
      plugin,
      `#!/bin/sh
echo "{\\"kind\\":\\"ExecCredential\\",\\"status\\":{\\"token\\":\\"$1-$GIVEN-$OWN\\",\\"expirationTimestamp\\":\\"$2\\"}}"`,
    );
    await chmod(plugin, 0o700);
    const exec = {
      apiVersion: "client.authentication.k8s.io/v1",
      command: "./plugin",
      args: ["made", new Date(Date.now() + 300_000).toISOString()],
      env: [{ name: "OWN", value: "of-its-own" }],
    };
    const access = await read({ exec });
    expect(access.authorization).toBe("Bearer made-from-outside-of-its-own");
    expect(access.freshForMs).toBeGreaterThan(290_000);
    expect(access.freshForMs).toBeLessThanOrEqual(300_000);
    expect((await read({ exec: { ...exec, args: ["made", ""] } })).freshForMs).toBe(Infinity);
  });

  test("is refused, with the reason, when it is not whole or asks for what is not there", async () => {
    await expect(read({}, {}, { contexts: [] })).rejects.toThrow('the kubeconfig has no context "here"');
    await expect(read({}, {}, { users: [] })).rejects.toThrow('the kubeconfig has no user "me"');
    await expect(read({ "auth-provider": { name: "oidc" } })).rejects.toThrow("auth-provider");
    await expect(read({}, { "proxy-url": "socks5://proxy.example" })).rejects.toThrow("proxy-url");
    await expect(read({ "client-certificate": "nowhere.pem" })).rejects.toThrow("nowhere.pem");
  });
});

test.for([
  { host: "10.0.0.1", url: "https://10.0.0.1:443" },
  { host: "fd00::1", url: "https://[fd00::1]:443" },
])("the pod's own account at $host", async ({ host, url }) => {
  await writeFile(join(folder, "token"), "the-token\n");
  await writeFile(join(folder, "ca.crt"), "the authority");
  expect(await readAccount(host, 443, folder)).toEqual({
    url,
    proxy: null,
    authorization: "Bearer the-token",
    tls: { ca: "the authority" },
    freshForMs: 60_000,
  });
});
