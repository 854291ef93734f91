{{/* Prefix of all names, another one for each release. Only the release that is called like the chart goes without the
chart's name behind its own: "foo-gapura" would have the names of "foo". */}}
{{- define "gapura.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- include "gapura.short" .Values.fullnameOverride -}}
{{- else if not (regexMatch "^[a-z][-a-z0-9]*$" .Release.Name) -}}
{{- fail (printf "the release's name %q begins names of Services, which are lower-case letters, digits and -, with a letter first: choose another one, or set fullnameOverride" .Release.Name) -}}
{{- else if eq $name .Release.Name -}}
{{- include "gapura.short" $name -}}
{{- else -}}
{{- include "gapura.short" (printf "%s-%s" .Release.Name $name) -}}
{{- end -}}
{{- end -}}

{{/* At most 40 characters, which leaves room for what follows; of a longer name a digest of the whole takes the place of
the end, since names may differ there alone. */}}
{{- define "gapura.short" -}}
{{- if le (len .) 40 -}}
{{- . | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (trunc 31 . | trimSuffix "-") (sha256sum . | trunc 8) -}}
{{- end -}}
{{- end -}}

{{/* Prefix of the names of what lies outside the release's namespace. Neither part can hold a colon, so that "b-c" in "a"
and "c" in "a-b" do not meet. */}}
{{- define "gapura.wideName" -}}
gapura:{{ .Release.Namespace }}:{{ include "gapura.fullname" . }}
{{- end -}}

{{- define "gapura.image" -}}
{{- $image := .Values.image -}}
{{ (ne $image.digest "") | ternary (printf "%s@%s" $image.repository $image.digest) (printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion)) }}
{{- end -}}

{{/* Labels that select what one install has. Of two in one release, which a chart of somebody's own has under aliases, the
alias is the chart's name. */}}
{{- define "gapura.install" -}}
app.kubernetes.io/name: {{ include "gapura.short" .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels that select one install's pods of one component: call with (list . "data-plane"). */}}
{{- define "gapura.selector" -}}
{{ include "gapura.install" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* A version as a label's value, which holds no plus and has at most 63 characters: Flux and CI append "+REVISION". */}}
{{- define "gapura.labelValue" -}}
{{- . | replace "+" "_" | trunc 63 | trimAll "-_." -}}
{{- end -}}

{{/* Labels of an object: call with (list . "data-plane"), and with further labels (a pod's) as the third of the list.
The chart's own win: selectors and the operator find pods by them. */}}
{{- define "gapura.labels" -}}
{{- $root := index . 0 -}}
{{- $own := include "gapura.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" (include "gapura.labelValue" $root.Chart.AppVersion) -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (include "gapura.labelValue" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)) -}}
{{- $more := gt (len .) 2 | ternary (last .) (dict) -}}
{{ toYaml (merge (dict) $own $more ($root.Values.commonLabels | default dict)) }}
{{- end -}}

{{/* What every pod of our image has, then where it runs: call with (list . VALUES), VALUES being those of the program. */}}
{{- define "gapura.pod" -}}
{{- $root := index . 0 -}}
{{- $of := index . 1 -}}
enableServiceLinks: false
securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- range $name, $value := dict "imagePullSecrets" $root.Values.imagePullSecrets "hostAliases" $root.Values.hostAliases "dnsConfig" $root.Values.dnsConfig "nodeSelector" $of.nodeSelector "tolerations" $of.tolerations "affinity" $of.affinity "priorityClassName" $of.priorityClassName }}
{{- with $value }}
{{ $name }}: {{- kindIs "string" . | ternary (printf " %q" (toString .)) (toYaml . | nindent 2) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What every container of our image has. */}}
{{- define "gapura.container" -}}
image: {{ include "gapura.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- toYaml .Values.containerSecurityContext | nindent 2 }}
{{- end -}}

{{/* Refuses an entry whose name stands already: call with (list SEEN FIELD PATH ENTRIES), SEEN saying of each name that is
taken why. Of two entries with one name server-side apply refuses the object, and nobody could say which one holds. */}}
{{- define "gapura.unique" -}}
{{- $seen := index . 0 -}}
{{- $field := index . 1 -}}
{{- $path := index . 2 -}}
{{- range $at, $entry := index . 3 -}}
{{- $name := get $entry $field -}}
{{- with get $seen $name -}}
{{- fail (printf "%s[%d]: %s is %s; it cannot stand twice" $path $at $name .) -}}
{{- end -}}
{{- $_ := set $seen $name "there already" -}}
{{- end -}}
{{- end -}}

{{/* Volumes and mounts besides the chart's own: call with (list VALUES PATH NAMES), NAMES being its own and where they are mounted. */}}
{{- define "gapura.uniqueVolumes" -}}
{{- $volumes := dict -}}
{{- $mounts := dict -}}
{{- range $name, $mounted := index . 2 -}}
{{- $_ := set $volumes $name "set by the chart" -}}
{{- $_ := set $mounts $mounted "set by the chart" -}}
{{- end -}}
{{- include "gapura.unique" (list $volumes "name" (printf "%s.extraVolumes" (index . 1)) (index . 0).extraVolumes) -}}
{{- include "gapura.unique" (list $mounts "mountPath" (printf "%s.extraVolumeMounts" (index . 1)) (index . 0).extraVolumeMounts) -}}
{{- end -}}

{{/* The environment: call with (list OWN PATH EXTRA), OWN being YAML. */}}
{{- define "gapura.env" -}}
{{- $own := index . 0 | fromYamlArray -}}
{{- $path := index . 1 -}}
{{- $seen := dict -}}
{{- range $own }}{{- $_ := set $seen .name (printf "set by the chart%s" (include "gapura.valueOf" .name)) }}{{- end -}}
{{- include "gapura.unique" (list $seen "name" $path (index . 2)) -}}
{{ toYaml (concat $own (index . 2 | default list)) }}
{{- end -}}

{{/* The value by which a variable of the chart is set, where there is one. */}}
{{- define "gapura.valueOf" -}}
{{- $values := dict "HOST" "dataPlane.host" "DRAIN_TIMEOUT" "dataPlane.drainTimeout" "CONSOLE" "console.enabled" "METRICS_ORGANIZATIONS" "metrics.organizations" "LOG_LEVEL" "logLevel" "PUBLIC_URL" "publicUrl" "OWN_HOSTS" "ownHosts" "DATABASE_URL" "postgres.existingSecret" "MIGRATE_DATABASE_URL" "postgres.migrateKey" "DATABASE_READ_URL" "postgres.readKey" "DATABASE_CONNECTIONS" "postgres.connections" "RETENTION_REQUESTS" "retention.requests" "RETENTION_AUDIT" "retention.audit" "RETENTION_USAGE" "retention.usage" "RETENTION_DROP" "retention.drop" "REDIS_URL" "redis.existingSecret" "SENTINEL_PASSWORD" "redis.sentinelPasswordKey" "REDIS_CACHE_URL" "redisCache.existingSecret" "GAPURA_SEAL_KEYS" "sealKeys.existingSecret" "FILES_S3_URL" "files.s3.existingSecret" "TENANCY" "tenancy" "PLATFORM_NAMESPACES" "platformNamespaces" "QUOTA_OBJECTS" "quotas.objects" "QUOTA_BYTES" "quotas.bytes" "WATCH_NAMESPACES" "watchNamespaces" -}}
{{- with get $values . }} by the value {{ . }}{{ end -}}
{{- end -}}

{{/* Name of a program's ServiceAccount, made by the chart or not: call with (list . VALUES "data-plane"). Never the namespace's
default account: what its pods run as would have the operator's rights. */}}
{{- define "gapura.serviceAccount" -}}
{{- (index . 1).serviceAccount.name | default (printf "%s-%s" (include "gapura.fullname" (index . 0)) (last .)) -}}
{{- end -}}

{{/* The ServiceAccount itself, when the chart makes it: the same call. */}}
{{- define "gapura.serviceAccountObject" -}}
{{- if (index . 1).serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "gapura.serviceAccount" . | quote }}
  namespace: {{ (index . 0).Release.Namespace | quote }}
  labels: {{- include "gapura.labels" (list (index . 0) (last .)) | nindent 4 }}
  {{- with (index . 1).serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
{{- end }}
{{- end -}}

{{- define "gapura.disruptionBudget" -}}
{{- $root := index . 0 -}}
{{- $self := list $root (last .) -}}
{{- if (index . 1).podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "gapura.fullname" $root }}-{{ last . }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels: {{- include "gapura.labels" $self | nindent 4 }}
spec:
  maxUnavailable: 1
  # A pod that is not ready serves nobody: it does not hold up the draining of a node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "gapura.selector" $self | nindent 6 }}
{{- end }}
{{- end -}}

{{/* Seconds until a data plane that ends is killed: its pause before it stops accepting, the drain, and the last charges. */}}
{{- define "gapura.gracePeriod" -}}
{{- $drain := .Values.dataPlane.drainTimeout | int64 -}}
{{- $grace := .Values.dataPlane.terminationGracePeriodSeconds | int64 -}}
{{- if and $grace (lt $grace (add $drain 40)) -}}
{{- fail (printf "dataPlane.terminationGracePeriodSeconds: %d ends a pod before dataPlane.drainTimeout (%d) is over; give it at least %d, or 0" $grace $drain (add $drain 40)) -}}
{{- end -}}
{{- $grace | default (add $drain 60) -}}
{{- end -}}

{{/* The container that migrates the database; the same in the Job and in a quickstart's pod. */}}
{{- define "gapura.migrateContainer" -}}
{{- include "gapura.uniqueVolumes" (list .Values.migrations "migrations" (dict "tmp" "/tmp")) -}}
name: migrate
{{ include "gapura.container" . }}
args: [dataplane/main.ts, migrate]
env: {{- include "gapura.env" (list (printf "%s%s" (include "gapura.storeEnv" .) (include "gapura.postgresEnv" (list . "MIGRATE_DATABASE_URL" "migrate"))) "migrations.extraEnv" .Values.migrations.extraEnv) | nindent 2 }}
resources: {{- toYaml .Values.migrations.resources | nindent 2 }}
volumeMounts:
- {name: tmp, mountPath: /tmp}
{{- with .Values.migrations.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Stops the render with a sentence that says what to set. */}}
{{- define "gapura.requireStores" -}}
{{- if .Values.quickstart.enabled -}}
{{- range $store, $names := dict "postgres" (list "host" "migrateHost" "readHost" "migrateKey" "readKey") "redis" (list "sentinelPasswordKey") -}}
{{- $of := index $.Values $store -}}
{{- range $names -}}
{{- if and (get $of .) (not $of.existingSecret) -}}
{{- fail (printf "%s.%s: goes with %s.existingSecret; without it quickstart.enabled runs a store of its own" $store . $store) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- if not .Values.postgres.existingSecret -}}
{{- fail "Gapura needs a Postgres: set postgres.existingSecret to a Secret whose key `url` holds its address, or quickstart.enabled=true for a trial." -}}
{{- end -}}
{{- if not .Values.redis.existingSecret -}}
{{- fail "Gapura needs a Redis: set redis.existingSecret to a Secret whose key `url` holds its address, or quickstart.enabled=true for a trial." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A host with a star is no address: the first one without. */}}
{{- define "gapura.publicUrl" -}}
{{- if .Values.publicUrl -}}
{{- .Values.publicUrl -}}
{{- else -}}
{{- $called := list -}}
{{- range include "gapura.hosts" . | fromYamlArray -}}
{{- if not (hasPrefix "*" .) }}{{- $called = append $called . }}{{- end -}}
{{- end -}}
{{- with $called -}}
https://{{ first . }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Host names of Ingress and HTTPRoute, as a YAML list. */}}
{{- define "gapura.hosts" -}}
{{- $hosts := list -}}
{{- with .Values.ingress.host }}{{- $hosts = append $hosts . }}{{- end -}}
{{- range .Values.ingress.hosts -}}
{{- $hosts = append $hosts (kindIs "string" . | ternary . (get (kindIs "string" . | ternary (dict) .) "host")) -}}
{{- end -}}
{{ $hosts | uniq | toYaml }}
{{- end -}}

{{/* An address of Postgres without user and password: call with (list . HOST), HOST with a port or without.
In a path a plus is no blank. */}}
{{- define "gapura.postgresUrl" -}}
{{- $host := last . -}}
{{- with (index . 0).Values.postgres -}}
postgres://{{ contains ":" $host | ternary $host (printf "%s:%v" $host .port) }}/{{ .database | urlquery | replace "+" "%20" }}?sslmode={{ .sslMode }}
{{- end -}}
{{- end -}}

{{- define "gapura.storeEnv" -}}
{{- $name := include "gapura.fullname" . -}}
{{- with .Values.postgres }}
{{- if and .existingSecret .host }}
- name: DATABASE_USER
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .userKey | quote }}}}
- name: DATABASE_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .passwordKey | quote }}}}
{{- end }}
{{- end }}
- name: DATABASE_URL
{{- if and .Values.postgres.existingSecret .Values.postgres.host }}
  value: {{ include "gapura.postgresUrl" (list . .Values.postgres.host) }}
{{- else if .Values.postgres.existingSecret }}
  valueFrom: {secretKeyRef: {name: {{ .Values.postgres.existingSecret | quote }}, key: {{ .Values.postgres.key | quote }}}}
{{- else }}
  value: postgres://gapura@{{ $name }}-postgres:5432/gapura
{{- end }}
- name: REDIS_URL
{{- if .Values.redis.existingSecret }}
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.existingSecret | quote }}, key: {{ .Values.redis.key | quote }}}}
{{- else }}
  value: redis://{{ $name }}-redis:6379
{{- end }}
{{- if and .Values.redis.existingSecret .Values.redis.sentinelPasswordKey }}
- name: SENTINEL_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.existingSecret | quote }}, key: {{ .Values.redis.sentinelPasswordKey | quote }}}}
{{- end }}
{{- if .Values.redisCache.existingSecret }}
- name: REDIS_CACHE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.redisCache.existingSecret | quote }}, key: {{ .Values.redisCache.key | quote }}}}
{{- end }}
{{- end -}}

{{/* Another address of the same database: call with (list . VARIABLE PREFIX) where PREFIX names its values. */}}
{{- define "gapura.postgresEnv" -}}
{{- $prefix := last . -}}
{{- with (index . 0).Values.postgres -}}
{{- $host := get . (printf "%sHost" $prefix) -}}
{{- $key := get . (printf "%sKey" $prefix) -}}
{{- if and $host (not .host) -}}
{{- fail (printf "postgres.%sHost: goes with postgres.host; put a URL into the Secret and its key into postgres.%sKey" $prefix $prefix) -}}
{{- end -}}
{{- if and .existingSecret $key }}
- name: {{ index $ 1 }}
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ $key | quote }}}}
{{- else if and .existingSecret $host }}
- name: {{ index $ 1 }}
  value: {{ include "gapura.postgresUrl" (list (index $ 0) $host) }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Names of the Secrets that the operator publishes into, as a YAML list: fixed names in two slots (design.md §7). */}}
{{- define "gapura.snapshotSecrets" -}}
{{- $name := include "gapura.fullname" . -}}
{{- range $slot := list "a" "b" }}
{{- range $shard := until 8 }}
- {{ $name }}-{{ $slot }}-{{ $shard }}
{{- end }}
{{- range $shard := until 2 }}
- {{ $name }}-{{ $slot }}-credentials-{{ $shard }}
{{- end }}
{{- end }}
{{- end -}}
