/** Sets of values that the chart is rendered with: what people install, and everything at once. */

/** The least that renders. */
export const stores = { postgres: { existingSecret: "pg" }, redis: { existingSecret: "rd" } };

export const everything = {
  ...stores,
  imagePullSecrets: [{ name: "registry" }],
  ingress: {
    enabled: true,
    host: "api.example.com",
    className: "nginx",
    tls: [{ hosts: ["api.example.com"], secretName: "tls" }],
    annotations: { "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600" },
  },
  gateway: { enabled: true, parentRefs: [{ name: "public" }] },
  networkPolicy: { enabled: true, allowTo: [{ ipBlock: { cidr: "10.9.0.0/16" }, ports: [{ port: 5432 }] }] },
  metrics: {
    serviceMonitor: { enabled: true },
    prometheusRule: { enabled: true },
    dashboards: { enabled: true },
  },
  redisCache: { existingSecret: "cache" },
  sealKeys: { existingSecret: "seal", key: "mine" },
  files: { s3: { existingSecret: "s3" } },
  dataPlane: {
    autoscaling: { enabled: true },
    extraEnv: [{ name: "A", value: "b" }],
    extraVolumes: [{ name: "ca", configMap: { name: "ca" } }],
    extraVolumeMounts: [{ name: "ca", mountPath: "/etc/ca", readOnly: true }],
    podAnnotations: { "example.com/team": "ml" },
    nodeSelector: { pool: "gateway" },
    tolerations: [{ key: "dedicated", operator: "Exists" }],
    affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [] } },
    topologySpread: [
      { maxSkew: 1, topologyKey: "topology.kubernetes.io/zone", whenUnsatisfiable: "DoNotSchedule" },
    ],
  },
  operator: { nodeSelector: { pool: "system" }, tolerations: [{ operator: "Exists" }] },
  service: { type: "LoadBalancer", port: 8443, annotations: { "example.com/internal": "true" } },
  watchNamespaces: ["team-a", "team-b"],
};

export const matrix: readonly (readonly [string, object])[] = [
  ["stores", stores],
  ["quickstart", { quickstart: { enabled: true } }],
  [
    "quickstart with a network policy and a storage class",
    { quickstart: { enabled: true, storageClassName: "fast" }, networkPolicy: { enabled: true } },
  ],
  ["quickstart beside a Postgres of one's own", { quickstart: { enabled: true }, postgres: stores.postgres }],
  ["everything", everything],
  [
    "no disruption budget, no tests, no migrations",
    {
      ...stores,
      dataPlane: { podDisruptionBudget: { enabled: false } },
      tests: { enabled: false },
      migrations: { enabled: false },
    },
  ],
];
