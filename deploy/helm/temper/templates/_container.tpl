{{/* The container of Temper, and what it sees of the pod. */}}
{{- define "temper.container" -}}
- name: temper
  image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [temper, serve, --config, /etc/temper/temper.toml]
  ports:
    - name: http
      containerPort: 8367
  env:
    {{- include "temper.env" . | nindent 4 }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- include "temper.securityContext" . | nindent 4 }}
  livenessProbe:
    {{- include "temper.probe" "/healthz" | nindent 4 }}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    {{- include "temper.probe" (ternary "/readyz" "/healthz" (eq .Values.shape "unit")) | nindent 4 }}
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 3
  startupProbe:
    {{- if eq .Values.shape "unit" }}
    {{- include "temper.probe" "/health" | nindent 4 }}
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: {{ max 1 (ceil (divf .Values.engine.startSeconds 5) | int) }}
    {{- else }}
    {{- include "temper.probe" "/healthz" | nindent 4 }}
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: 60
    {{- end }}
  {{- if gt (int .Values.preStopSeconds) 0 }}
  lifecycle:
    preStop:
      sleep:
        seconds: {{ .Values.preStopSeconds }}
  {{- end }}
  volumeMounts:
    - name: config
      mountPath: /etc/temper
      readOnly: true
    {{- if include "temper.keys" . }}
    - name: keys
      mountPath: /run/secrets/temper
      readOnly: true
    {{- end }}
    - name: tmp
      mountPath: /tmp
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "temper.env" -}}
- name: TEMPER_SERVER__HOST
  value: {{ .Values.listen | quote }}
{{- with .Values.existingSecret }}
- name: TEMPER_SERVER__API_KEY_FILE
  value: /run/secrets/temper/api-key
{{- end }}
{{- with .Values.backendSecret }}
- name: TEMPER_BACKEND__API_KEY_FILE
  value: /run/secrets/temper/backend-key
{{- end }}
{{- with .Values.stateSecret }}
- name: TEMPER_STATE__SECRET_FILE
  value: /run/secrets/temper/state-secret
{{- end }}
- name: XDG_CACHE_HOME
  value: /tmp/cache
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What comes from Secrets, as files in one folder. */}}
{{- define "temper.keys" -}}
{{- with .Values.existingSecret }}
- secret:
    name: {{ . }}
    items:
      - key: {{ $.Values.existingSecretKey }}
        path: api-key
{{- end }}
{{- with .Values.backendSecret }}
- secret:
    name: {{ . }}
    items:
      - key: {{ $.Values.backendSecretKey }}
        path: backend-key
{{- end }}
{{- with .Values.stateSecret }}
- secret:
    name: {{ . }}
    items:
      - key: {{ $.Values.stateSecretKey }}
        path: state-secret
{{- end }}
{{- end -}}

{{- define "temper.volumes" -}}
- name: config
  configMap:
    name: {{ include "temper.fullname" . }}
{{- with include "temper.keys" . }}
- name: keys
  projected:
    defaultMode: 0440
    sources:
      {{- . | nindent 6 }}
{{- end }}
- name: tmp
  emptyDir: {}
{{- if eq .Values.shape "unit" }}
- name: models
  {{- toYaml .Values.engine.modelVolume | nindent 2 }}
- name: engine-tmp
  emptyDir: {}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
