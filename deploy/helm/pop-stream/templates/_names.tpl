{{- define "pop-stream.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "pop-stream.secret" -}}
{{- .Values.secret.name | default (include "pop-stream.fullname" .) -}}
{{- end -}}

{{- /* What a selector asks for. Of a list: the root, and a component, or "" for all. */ -}}
{{- define "pop-stream.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- /* The labels of an object; as pop-stream.selector. */ -}}
{{- define "pop-stream.labels" -}}
{{- $root := index . 0 -}}
{{ include "pop-stream.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{- /* The settings of every part, as a ConfigMap's data. */ -}}
{{- define "pop-stream.settings" -}}
{{- $fixed := dict
  "POP_KAFKA_BOOTSTRAP" .Values.kafka.bootstrap
  "POP_REPLICATION_FACTOR" (.Values.kafka.replicationFactor | toString)
  "POP_HTTP_HOST" "0.0.0.0"
  "POP_API_URL" (printf "http://%s-api:8080" (include "pop-stream.fullname" .))
  "POP_METRICS_HOST" "0.0.0.0"
  "POP_METRICS_PORT" "9100"
  "POP_PULLER_GRACE" (printf "PT%dS" (.Values.pullerGraceSeconds | int))
  "POP_DEFINITIONS_FILE" "/etc/pop-stream/definitions.toml" -}}
{{- $own := concat (keys $fixed) (list "POP_HTTP_PORT" "POP_INSTANCE" "POP_SCHEDULER_DATA") -}}
{{- $secrets := list "POP_API_TOKEN" "POP_KAFKA_PASSWORD" "POP_OIDC_CLIENT_SECRET" "POP_POSTGRES_DSN"
  "POP_SIGNING_SECRETS" "POP_WEBHOOK_KEYS" -}}
{{- range $name, $_ := .Values.settings -}}
{{- if has $name $secrets -}}
{{- fail (printf "settings.%s: it is secret; give it by `secret`, or by `extraEnv` from a Secret" $name) -}}
{{- else if has $name $own -}}
{{- fail (printf "settings.%s: the chart sets it itself; leave it out" $name) -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := merge $fixed .Values.settings }}
{{ $name }}: {{ $value | toString | quote }}
{{- end }}
{{- end -}}
