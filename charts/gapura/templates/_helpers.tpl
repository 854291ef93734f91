{{/* Prefix of all names, another one for each release. Only the release that is called like the chart goes without the
chart's name behind its own: "foo-gapura" would have the names of "foo". */}}
{{- define "gapura.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- include "gapura.short" .Values.fullnameOverride -}}
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
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}

{{/* Labels that select one release's pods of one component: call with (list . "data-plane"). */}}
{{- define "gapura.selector" -}}
app.kubernetes.io/name: gapura
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "gapura.labels" -}}
{{ include "gapura.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- end -}}

{{- define "gapura.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gapura.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Stops the render with a sentence that says what to set. */}}
{{- define "gapura.requireStores" -}}
{{- if not .Values.quickstart.enabled -}}
{{- if not .Values.postgres.existingSecret -}}
{{- fail "Gapura needs a Postgres: set postgres.existingSecret to a Secret whose key `url` holds its address, or quickstart.enabled=true for a trial." -}}
{{- end -}}
{{- if not .Values.redis.existingSecret -}}
{{- fail "Gapura needs a Redis: set redis.existingSecret to a Secret whose key `url` holds its address, or quickstart.enabled=true for a trial." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gapura.publicUrl" -}}
{{- if .Values.publicUrl -}}
{{- .Values.publicUrl -}}
{{- else if .Values.ingress.host -}}
https://{{ .Values.ingress.host }}
{{- end -}}
{{- end -}}

{{- define "gapura.storeEnv" -}}
{{- $name := include "gapura.fullname" . -}}
- name: DATABASE_URL
{{- if .Values.postgres.existingSecret }}
  valueFrom: {secretKeyRef: {name: {{ .Values.postgres.existingSecret }}, key: {{ .Values.postgres.key }}}}
{{- else }}
  value: postgres://gapura@{{ $name }}-postgres:5432/gapura
{{- end }}
- name: REDIS_URL
{{- if .Values.redis.existingSecret }}
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.existingSecret }}, key: {{ .Values.redis.key }}}}
{{- else }}
  value: redis://{{ $name }}-redis:6379
{{- end }}
{{- if .Values.redisCache.existingSecret }}
- name: REDIS_CACHE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.redisCache.existingSecret }}, key: {{ .Values.redisCache.key }}}}
{{- end }}
{{- end -}}

{{/* Names of the Secrets that the operator publishes into, as a YAML list: fixed slots in two banks (design.md §7). */}}
{{- define "gapura.snapshotSecrets" -}}
{{- $name := include "gapura.fullname" . -}}
{{- range $bank := list "a" "b" }}
{{- range $shard := until 8 }}
- {{ $name }}-{{ $bank }}-{{ $shard }}
{{- end }}
{{- range $shard := until 2 }}
- {{ $name }}-{{ $bank }}-credentials-{{ $shard }}
{{- end }}
{{- end }}
{{- end -}}
