/** Sets of values that the chart is rendered with: what people install, and everything at once. */

/** The least that renders. */
export const stores = { postgres: { existingSecret: "pg" }, redis: { existingSecret: "rd" } };

/** Of a container of somebody else, as Pod Security wants it. */
const restricted = {
  allowPrivilegeEscalation: false,
  readOnlyRootFilesystem: true,
  runAsNonRoot: true,
  capabilities: { drop: ["ALL"] },
};
const resources = {
  requests: { cpu: "10m", memory: "16Mi", "ephemeral-storage": "16Mi" },
  limits: { memory: "64Mi", "ephemeral-storage": "64Mi" },
};
const ca = {
  extraVolumes: [{ name: "ca", configMap: { name: "ca" } }],
  extraVolumeMounts: [{ name: "ca", mountPath: "/etc/ca", readOnly: true }],
};

export const everything = {
  ...stores,
  imagePullSecrets: [{ name: "registry" }],
  commonLabels: { team: "ml" },
  hostAliases: [{ ip: "10.0.0.9", hostnames: ["db.internal"] }],
  dnsConfig: { options: [{ name: "ndots", value: "1" }] },
  extraObjects: [
    { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "ca", namespace: "{{ .Release.Namespace }}" } },
  ],
  ingress: {
    enabled: true,
    host: "api.example.com",
    hosts: ["llm.example.com", { host: "llm.example.org" }],
    className: "nginx",
    tls: [{ hosts: ["api.example.com"], secretName: "tls" }],
    annotations: { "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600" },
  },
  gateway: { enabled: true, parentRefs: [{ name: "public" }], annotations: { "example.com/a": "b" } },
  networkPolicy: {
    enabled: true,
    apiServerPorts: [443, 8443],
    allowTo: [{ ipBlock: { cidr: "10.9.0.0/16" }, ports: [{ port: 5432 }] }],
    opsFrom: [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "monitoring" } } }],
  },
  metrics: {
    serviceAnnotations: { "prometheus.io/scrape": "true" },
    serviceMonitor: { enabled: true, labels: { release: "prometheus" }, interval: "1m" },
    prometheusRule: {
      enabled: true,
      labels: { release: "prometheus" },
      annotations: { "example.com/a": "b" },
      interval: "1m",
    },
    dashboards: { enabled: true, annotations: { grafana_folder: "Inference" } },
  },
  redisCache: { existingSecret: "cache" },
  sealKeys: { existingSecret: "seal", key: "mine" },
  files: { s3: { existingSecret: "s3" } },
  dataPlane: {
    autoscaling: {
      enabled: true,
      metrics: [
        {
          type: "Pods",
          pods: {
            metric: { name: "gapura_upstream_active_requests" },
            target: { type: "AverageValue", averageValue: 200 },
          },
        },
      ],
    },
    drainTimeout: 1800,
    annotations: { "example.com/owner": "ml" },
    podLabels: { "azure.workload.identity/use": "true" },
    serviceAccount: { annotations: { "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/gapura" } },
    initContainers: [
      { name: "wait", image: "busybox:1", command: ["true"], securityContext: restricted, resources },
    ],
    sidecars: [{ name: "proxy", image: "proxy:1", securityContext: restricted, resources }],
    extraEnv: [{ name: "A", value: "b" }],
    ...ca,
    podAnnotations: { "example.com/team": "ml" },
    nodeSelector: { pool: "gateway" },
    tolerations: [{ key: "dedicated", operator: "Exists" }],
    affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [] } },
    topologySpread: [
      { maxSkew: 1, topologyKey: "topology.kubernetes.io/zone", whenUnsatisfiable: "DoNotSchedule" },
    ],
  },
  operator: {
    nodeSelector: { pool: "system" },
    tolerations: [{ operator: "Exists" }],
    podAnnotations: { "example.com/team": "ml" },
    serviceAccount: { name: "gapura-op" },
    extraEnv: [{ name: "HTTPS_PROXY", value: "http://proxy.internal:3128" }],
    ...ca,
  },
  migrations: {
    ...ca,
    extraEnv: [{ name: "NODE_EXTRA_CA_CERTS", value: "/etc/ca/ca.crt" }],
    tolerations: [{ operator: "Exists" }],
    podAnnotations: { "sidecar.istio.io/inject": "false" },
    serviceAccountName: "migrator",
  },
  service: {
    type: "LoadBalancer",
    port: 8443,
    annotations: { "example.com/internal": "true" },
    loadBalancerClass: "example.com/lb",
    loadBalancerSourceRanges: ["192.0.2.0/24"],
  },
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
    "user and password of Postgres apart, a digest, OpenShift's ids",
    {
      ...stores,
      image: { digest: `sha256:${"0".repeat(64)}` },
      postgres: { existingSecret: "pg", host: "db.internal" },
      podSecurityContext: { runAsUser: null, runAsGroup: null, fsGroup: null },
    },
  ],
  [
    "a pooler, Postgres itself and a replica by their names, sentinels with a password, all of a private authority",
    {
      postgres: {
        existingSecret: "ledger-app",
        host: "ledger-pooler-rw.data",
        migrateHost: "ledger-rw.data",
        readHost: "ledger-ro.data",
        connections: 4,
      },
      redis: { existingSecret: "rd", sentinelPasswordKey: "sentinels" },
      dataPlane: { ...ca, extraEnv: [{ name: "NODE_EXTRA_CA_CERTS", value: "/etc/ca/ca.crt" }] },
      migrations: { ...ca, extraEnv: [{ name: "NODE_EXTRA_CA_CERTS", value: "/etc/ca/ca.crt" }] },
    },
  ],
  [
    "quickstart that migrates with a private authority",
    {
      quickstart: { enabled: true },
      postgres: stores.postgres,
      dataPlane: ca,
      migrations: { ...ca, extraEnv: [{ name: "NODE_EXTRA_CA_CERTS", value: "/etc/ca/ca.crt" }] },
    },
  ],
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
