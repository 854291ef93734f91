/** Values of how the data plane is reached, and of what it may reach: Service, Ingress, HTTPRoute, network policies. */
import { at, type Case, env, ingress, last } from "./value-readers.ts";

const gateway = { enabled: true, parentRefs: [{ name: "public" }] };
const monitoring = { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "monitoring" } } };

export const networkCases: readonly Case[] = [
  {
    value: "service.type",
    set: { service: { type: "NodePort" } },
    read: at("Service", "gapura", "spec", "type"),
    is: "NodePort",
  },
  {
    value: "service.port",
    set: { service: { port: 8443 } },
    read: (rendered) => [
      at("Service", "gapura", "spec", "ports", 0, "port")(rendered),
      JSON.stringify(at("Pod", "gapura-smoke")(rendered)).includes("http://gapura:8443/"),
    ],
    is: [8443, true],
  },
  {
    value: "service.annotations",
    set: { service: { annotations: { internal: "true" } } },
    read: at("Service", "gapura", "metadata", "annotations"),
    is: { internal: "true" },
  },
  {
    value: "service.loadBalancerClass",
    base: { service: { type: "LoadBalancer" } },
    set: { service: { type: "LoadBalancer", loadBalancerClass: "service.k8s.aws/nlb" } },
    read: at("Service", "gapura", "spec", "loadBalancerClass"),
    is: "service.k8s.aws/nlb",
  },
  {
    value: "service.loadBalancerSourceRanges",
    base: { service: { type: "LoadBalancer" } },
    set: { service: { type: "LoadBalancer", loadBalancerSourceRanges: ["192.0.2.0/24"] } },
    read: at("Service", "gapura", "spec", "loadBalancerSourceRanges"),
    is: ["192.0.2.0/24"],
  },
  {
    value: "ingress.enabled",
    set: { ingress: { enabled: true } },
    read: at("Ingress", "gapura", "spec", "rules", 0, "http", "paths", 0, "backend"),
    is: { service: { name: "gapura", port: { name: "http" } } },
  },
  {
    value: "ingress.host",
    base: { ingress: { enabled: true } },
    set: { ingress },
    read: (rendered) => [
      at("Ingress", "gapura", "spec", "rules", 0, "host")(rendered),
      env("data-plane", "PUBLIC_URL")(rendered),
    ],
    is: ["api.example.com", { name: "PUBLIC_URL", value: "https://api.example.com" }],
  },
  {
    value: "ingress.hosts",
    base: { ingress: { enabled: true }, gateway },
    set: { ingress: { enabled: true, hosts: ["llm.example.com", { host: "llm.example.org" }] }, gateway },
    read: (rendered) => [
      (at("Ingress", "gapura", "spec", "rules")(rendered) as { host?: string; http: unknown }[]).map(
        ({ host }) => host,
      ),
      at("Ingress", "gapura", "spec", "rules", 1, "http", "paths", 0, "backend", "service", "name")(rendered),
      at("HTTPRoute", "gapura", "spec", "hostnames")(rendered),
      env("data-plane", "PUBLIC_URL")(rendered),
    ],
    is: [
      ["llm.example.com", "llm.example.org"],
      "gapura",
      ["llm.example.com", "llm.example.org"],
      { name: "PUBLIC_URL", value: "https://llm.example.com" },
    ],
  },
  {
    value: "ingress.className",
    base: { ingress },
    set: { ingress: { ...ingress, className: "traefik" } },
    read: at("Ingress", "gapura", "spec", "ingressClassName"),
    is: "traefik",
  },
  {
    value: "ingress.tls",
    base: { ingress },
    set: { ingress: { ...ingress, tls: [{ hosts: ["api.example.com"], secretName: "tls" }] } },
    read: at("Ingress", "gapura", "spec", "tls"),
    is: [{ hosts: ["api.example.com"], secretName: "tls" }],
  },
  {
    value: "ingress.annotations",
    base: { ingress },
    set: { ingress: { ...ingress, annotations: { "cert-manager.io/cluster-issuer": "le" } } },
    read: at("Ingress", "gapura", "metadata", "annotations", "cert-manager.io/cluster-issuer"),
    is: "le",
  },
  {
    value: "gateway.enabled",
    set: { gateway: { enabled: true, parentRefs: [{ name: "public" }] } },
    read: at("HTTPRoute", "gapura", "spec", "rules"),
    is: [
      {
        matches: [{ path: { type: "PathPrefix", value: "/" } }],
        backendRefs: [{ group: "", kind: "Service", name: "gapura", port: 80, weight: 1 }],
        timeouts: { request: "0s", backendRequest: "0s" },
      },
    ],
  },
  {
    value: "gateway.parentRefs",
    base: { gateway: { enabled: true, parentRefs: [{ name: "public" }] } },
    set: { gateway: { enabled: true, parentRefs: [{ name: "inner", namespace: "net" }] } },
    read: at("HTTPRoute", "gapura", "spec", "parentRefs"),
    is: [{ group: "gateway.networking.k8s.io", kind: "Gateway", name: "inner", namespace: "net" }],
  },
  {
    value: "gateway.annotations",
    base: { gateway },
    set: { gateway: { ...gateway, annotations: { "external-dns.alpha.kubernetes.io/ttl": "60" } } },
    read: at("HTTPRoute", "gapura", "metadata", "annotations"),
    is: { "external-dns.alpha.kubernetes.io/ttl": "60" },
  },
  {
    value: "networkPolicy.enabled",
    set: { networkPolicy: { enabled: true } },
    read: (rendered) => rendered.all("NetworkPolicy").map(({ metadata }) => metadata.name),
    is: ["gapura-data-plane", "gapura-operator", "gapura-smoke"],
  },
  {
    value: "networkPolicy.dnsPorts",
    base: { networkPolicy: { enabled: true } },
    set: { networkPolicy: { enabled: true, dnsPorts: [53, 5353] } },
    // Of every pod that resolves names: the data plane's, the operator's, and the one of `helm test`.
    read: (rendered) =>
      ["gapura-data-plane", "gapura-operator", "gapura-smoke"].map((name) =>
        at("NetworkPolicy", name, "spec", "egress", 0, "ports")(rendered),
      ),
    is: Array.from({ length: 3 }, () =>
      [53, 5353].flatMap((port) => ["UDP", "TCP"].map((protocol) => ({ port, protocol }))),
    ),
  },
  {
    value: "networkPolicy.apiServerPorts",
    base: { networkPolicy: { enabled: true } },
    set: { networkPolicy: { enabled: true, apiServerPorts: [8443] } },
    read: at("NetworkPolicy", "gapura-operator", "spec", "egress", 1),
    is: { ports: [{ port: 8443 }] },
  },
  {
    value: "networkPolicy.allowTo",
    base: { networkPolicy: { enabled: true } },
    set: {
      networkPolicy: {
        enabled: true,
        allowTo: [{ namespaceSelector: { matchLabels: { a: "b" } }, ports: [{ port: 5432 }] }],
      },
    },
    read: last(at("NetworkPolicy", "gapura-data-plane", "spec", "egress")),
    is: { to: [{ namespaceSelector: { matchLabels: { a: "b" } } }], ports: [{ port: 5432 }] },
  },
  {
    value: "networkPolicy.opsFrom",
    base: { networkPolicy: { enabled: true } },
    set: { networkPolicy: { enabled: true, opsFrom: [monitoring] } },
    read: (rendered) => [
      at("NetworkPolicy", "gapura-data-plane", "spec", "ingress", 1, "from")(rendered),
      at("NetworkPolicy", "gapura-operator", "spec", "ingress", 0, "from")(rendered),
    ],
    is: [
      [
        {
          podSelector: {
            matchLabels: {
              "app.kubernetes.io/name": "gapura",
              "app.kubernetes.io/instance": "gapura",
              "app.kubernetes.io/component": "operator",
            },
          },
        },
        monitoring,
      ],
      [monitoring],
    ],
  },
];
