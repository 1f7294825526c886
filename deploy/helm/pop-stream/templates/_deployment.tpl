{{- /* A Deployment. Of a dict: as pop-stream.pod, and replicas (null if something scales it). */ -}}
{{- define "pop-stream.deployment" -}}
{{- $root := .root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "pop-stream.fullname" $root }}-{{ .component }}
  labels:
    {{- include "pop-stream.labels" (list $root .component) | nindent 4 }}
spec:
  {{- if not (kindIs "invalid" .replicas) }}
  replicas: {{ .replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "pop-stream.selector" (list $root .component) | nindent 6 }}
  strategy:
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  template:
    {{- include "pop-stream.pod" . | nindent 4 }}
{{- end -}}
