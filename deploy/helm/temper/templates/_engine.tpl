{{/* The llama-server of a unit: it starts before Temper and ends after it, so that the requests that
     are running then get their answers. */}}
{{- define "temper.engine" -}}
- name: engine
  restartPolicy: Always
  image: {{ .Values.engine.image | quote }}
  imagePullPolicy: {{ .Values.engine.pullPolicy }}
  args:
    - --model
    - /models/{{ .Values.engine.model }}
    - --host
    - 127.0.0.1
    - --port
    - {{ .Values.engine.port | quote }}
    - --parallel
    - {{ .Values.engine.slots | quote }}
    - --ctx-size
    - {{ mul .Values.engine.slots .Values.engine.contextTokens | quote }}
    {{- range .Values.engine.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  {{- with .Values.engine.env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.engine.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- mergeOverwrite (include "temper.securityContext" . | fromYaml) .Values.engine.securityContext | toYaml | nindent 4 }}
  volumeMounts:
    - name: models
      mountPath: /models
      readOnly: true
    - name: engine-tmp
      mountPath: /tmp
{{- end -}}
