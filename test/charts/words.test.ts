/** Names that YAML reads as numbers: namespaces of pull requests, Secrets and classes called so. They stay names. */
import { describe, expect, test } from "vitest";
import { render } from "./helm.ts";

const NUMBER = 4711;
const name = String(NUMBER);

/** Everything that the chart makes, each name of somebody else's making a number. */
const everywhere = {
  console: { enabled: true },
  ingress: { enabled: true, host: "api.example.com", className: name },
  gateway: { enabled: true, parentRefs: [{ name }] },
  networkPolicy: { enabled: true },
  metrics: {
    serviceMonitor: { enabled: true },
    prometheusRule: { enabled: true },
    dashboards: { enabled: true },
  },
  service: { type: "LoadBalancer", loadBalancerClass: name },
  dataPlane: { serviceAccount: { name }, priorityClassName: name },
  operator: { serviceAccount: { name }, priorityClassName: name },
  migrations: { serviceAccountName: name, priorityClassName: name },
  commonLabels: { team: name },
  imagePullSecrets: [{ name }],
};
const key = name;
const secrets = {
  postgres: { existingSecret: name, key, migrateKey: key, readKey: key },
  redis: { existingSecret: name, key, sentinelPasswordKey: key },
  redisCache: { existingSecret: name, key },
  sealKeys: { existingSecret: name, key },
  files: { s3: { existingSecret: name, key } },
};

/** Paths at which the number stands as one. */
const numbersIn = (value: unknown, path: string): string[] => {
  if (value === NUMBER) return [path];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([step, inner]) => numbersIn(inner, `${path}.${step}`));
};

describe("a name of digits stays a name", () => {
  test.each([
    ["with stores of one's own", { ...everywhere, ...secrets }],
    [
      "with user and password in keys of their own",
      {
        ...everywhere,
        ...secrets,
        postgres: { existingSecret: name, host: "db", userKey: key, passwordKey: key },
      },
    ],
    [
      "with a quickstart",
      {
        ...everywhere,
        quickstart: {
          enabled: true,
          storageClassName: name,
          postgres: { image: name },
          redis: { image: name },
        },
      },
    ],
    ["in namespaces that are watched", { ...everywhere, ...secrets, watchNamespaces: [name] }],
  ])("%s", async (_case, values) => {
    const { objects } = await render({ ...values, fullnameOverride: "gapura" }, name, name);
    expect(objects.length).toBeGreaterThan(20);
    expect(objects.flatMap((object) => numbersIn(object, `${object.kind} ${object.metadata.name}`))).toEqual(
      [],
    );
  });
});
