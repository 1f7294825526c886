{{- /*
The pod of a part. Of a dict: root, component, args, port (0 for none), grace (seconds), resources,
image ("" for the chart's), settings and definitions (names of ConfigMaps), data (a path to keep, or ""),
preStop (seconds that the part goes on serving).
*/ -}}
{{- define "pop-stream.pod" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
metadata:
  labels:
    {{- include "pop-stream.selector" (list $root .component) | nindent 4 }}
  annotations:
    checksum/settings: {{ include "pop-stream.settings" $root | sha256sum }}
    checksum/definitions: {{ $values.definitions | sha256sum }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ .grace }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile:
      type: RuntimeDefault
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
  - name: part
    image: {{ .image | default (printf "%s:%s" $values.image.repository ($values.image.tag | default $root.Chart.AppVersion)) | quote }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    envFrom:
    - configMapRef:
        name: {{ .settings }}
    env:
    - name: POP_INSTANCE
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    - name: POP_POSTGRES_DSN
      valueFrom:
        secretKeyRef:
          name: {{ include "pop-stream.secret" $root }}
          key: {{ $values.secret.postgresDsnKey }}
    - name: POP_SIGNING_SECRETS
      valueFrom:
        secretKeyRef:
          name: {{ include "pop-stream.secret" $root }}
          key: {{ $values.secret.signingSecretsKey }}
    {{- with .data }}
    - name: POP_SCHEDULER_DATA
      value: {{ . }}
    {{- end }}
    {{- with $values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .port }}
    ports:
    - name: http
      containerPort: {{ . }}
    startupProbe:
      httpGet:
        path: /healthz
        port: http
      periodSeconds: 2
      failureThreshold: 60
    livenessProbe:
      httpGet:
        path: /healthz
        port: http
      periodSeconds: 10
      timeoutSeconds: 5
    readinessProbe:
      httpGet:
        path: /readyz
        port: http
      periodSeconds: 5
      timeoutSeconds: 5
    {{- end }}
    {{- with .preStop }}
    lifecycle:
      preStop:
        exec:
          command:
          - sleep
          - {{ . | quote }}
    {{- end }}
    resources:
      {{- .resources | default $values.resources | toYaml | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop:
        - ALL
    volumeMounts:
    - name: tmp
      mountPath: /tmp
    - name: definitions
      mountPath: /etc/pop-stream
      readOnly: true
    {{- with .data }}
    - name: data
      mountPath: {{ . }}
    {{- end }}
    {{- with $values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
  - name: tmp
    emptyDir: {}
  - name: definitions
    configMap:
      name: {{ .definitions }}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if .port }}
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    {{- if $values.spread.required }}
    whenUnsatisfiable: DoNotSchedule
    nodeTaintsPolicy: Honor
    {{- else }}
    whenUnsatisfiable: ScheduleAnyway
    {{- end }}
    labelSelector:
      matchLabels:
        {{- include "pop-stream.selector" (list $root .component) | nindent 8 }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "pop-stream.selector" (list $root .component) | nindent 8 }}
  {{- else }}
  restartPolicy: OnFailure
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
