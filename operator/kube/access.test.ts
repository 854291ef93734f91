import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { KubeConfig } from "@kubernetes/client-node";
import { accessOf, readAccess } from "./access.ts";

let folder = "";
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "gapura-access-"));
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(folder, { recursive: true, force: true });
});

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
  return readAccess(file);
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
      { "client-certificate-data": base64("c"), "client-key-data": base64("k") },
      { "proxy-url": "http://proxy.example:3128", "insecure-skip-tls-verify": true },
    );
    expect(access).toMatchObject({
      proxy: "http://proxy.example:3128",
      tls: { cert: "c", key: "k", rejectUnauthorized: false },
    });
  });

  test("holds a token, or a name and a password", async () => {
    expect((await read({ token: "one" })).authorization).toBe("Bearer one");
    const basic = await read({ username: "me", password: "p" });
    expect(basic.authorization).toBe(`Basic ${base64("me:p")}`);
  });

  test("names a plugin, which runs in our environment and its own", async () => {
    const plugin = join(folder, "plugin");
    await writeFile(
      plugin,
      `#!/bin/sh
echo "{\\"kind\\":\\"ExecCredential\\",\\"status\\":{\\"token\\":\\"$1-$OWN\\"}}"`,
    );
    await chmod(plugin, 0o700);
    const exec = {
      apiVersion: "client.authentication.k8s.io/v1",
      command: plugin,
      args: ["made"],
      env: [{ name: "OWN", value: "of-its-own" }],
    };
    expect((await read({ exec })).authorization).toBe("Bearer made-of-its-own");
  });

  test("is refused, with the reason, when it is not whole or asks for what is not there", async () => {
    await expect(read({}, {}, { contexts: [] })).rejects.toThrow("the kubeconfig has no current cluster");
    await expect(read({}, { "proxy-url": "socks5://proxy.example" })).rejects.toThrow("proxy-url");
    await expect(read({ "client-certificate": "nowhere.pem" })).rejects.toThrow("nowhere.pem");
  });
});

test("the pod's own account, its token read anew at each reading", async () => {
  const account = join(folder, "var/run/secrets/kubernetes.io/serviceaccount");
  await mkdir(account, { recursive: true });
  await writeFile(join(account, "ca.crt"), "the authority");
  vi.stubEnv("KUBERNETES_SERVICE_HOST", "fd00::1");
  vi.stubEnv("KUBERNETES_SERVICE_PORT", "443");
  for (const token of ["one", "two"]) {
    await writeFile(join(account, "token"), token);
    const config = new KubeConfig();
    config.loadFromCluster(folder);
    expect(await accessOf(config)).toEqual({
      url: "https://[fd00::1]:443",
      proxy: null,
      authorization: `Bearer ${token}`,
      tls: { ca: "the authority" },
      freshForMs: 60_000,
    });
  }
});

test("a kubeconfig that is no YAML is named, and nothing that stands in it is told", async () => {
  const file = join(folder, "config");
  await writeFile(file, "users:\n- user: {token: hunter2\nclusters: [\n");
  const error = await readAccess(file).catch((thrown: unknown) => thrown);
  expect(String(error)).toMatch(/^Error: the kubeconfig \S+config cannot be read: \S/);
  expect(String(error)).not.toContain("hunter2");
  await writeFile(file, "users:\n- user: {token: *hunter2}\n");
  await expect(readAccess(file)).rejects.toThrow(/cannot be read: unidentified alias …/);
  await expect(readAccess(join(folder, "none"))).rejects.toThrow(
    /the kubeconfig \S+none cannot be read: ENOENT/,
  );
});
