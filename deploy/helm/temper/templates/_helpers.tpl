{{/* Names and labels. */}}
{{- define "temper.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "temper.fullname" -}}
{{- $name := include "temper.name" . -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $both | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "temper.selector" -}}
app.kubernetes.io/name: {{ include "temper.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "temper.labels" -}}
{{ include "temper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .Values.shape }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "temper.metadata" -}}
name: {{ include "temper.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "temper.labels" . | nindent 2 }}
{{- end -}}

{{/* How many pods there are at first. */}}
{{- define "temper.replicas" -}}
{{- if kindIs "invalid" .Values.replicas -}}
{{ ternary 1 2 (eq .Values.shape "unit") }}
{{- else -}}
{{ .Values.replicas | int }}
{{- end -}}
{{- end -}}

{{/* How many pods there are at least, always. */}}
{{- define "temper.fewest" -}}
{{- if .Values.autoscaling.enabled -}}
{{ .Values.autoscaling.minReplicas | int }}
{{- else -}}
{{ include "temper.replicas" . }}
{{- end -}}
{{- end -}}

{{/* The settings as they are meant, as JSON: those of the values, and where the engines are. */}}
{{- define "temper.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if eq .Values.shape "unit" -}}
{{- $own := printf "http://127.0.0.1:%d" (int .Values.engine.port) -}}
{{- $_ := set $config "backend" (merge (dict "url" $own) ($config.backend | default dict)) -}}
{{- else if .Values.backends -}}
{{- $_ := set $config "backend" (merge (dict "urls" .Values.backends) ($config.backend | default dict)) -}}
{{- end -}}
{{- $config | toJson -}}
{{- end -}}

{{/* temper.toml. Helm's toToml makes 300.0 of 300 and 3.3554432e+07 of a size. */}}
{{- define "temper.toml" -}}
{{- $sections := list -}}
{{- range $section, $values := include "temper.config" . | fromJson -}}
{{- $lines := list (printf "[%s]" $section) -}}
{{- range $name, $value := $values -}}
{{- $lines = append $lines (include "temper.toml.pair" (list $name $value)) -}}
{{- end -}}
{{- $sections = append $sections (join "\n" $lines) -}}
{{- end -}}
{{- join "\n\n" $sections -}}
{{- end -}}

{{- define "temper.toml.pair" -}}
{{- $name := first . -}}
{{- regexMatch "^[A-Za-z0-9_-]+$" $name | ternary $name (toJson $name) }} = {{ include "temper.toml.value" (last .) -}}
{{- end -}}

{{- define "temper.toml.value" -}}
{{- $items := list -}}
{{- if kindIs "map" . -}}
{{- range $name, $value := . -}}
{{- $items = append $items (include "temper.toml.pair" (list $name $value)) -}}
{{- end -}}
{ {{- join ", " $items -}} }
{{- else if kindIs "slice" . -}}
{{- range . -}}
{{- $items = append $items (include "temper.toml.value" .) -}}
{{- end -}}
[ {{- join ", " $items -}} ]
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}

{{/* Seconds from the end of the pod to its being killed. */}}
{{- define "temper.graceSeconds" -}}
{{- $server := .Values.config.server | default dict -}}
{{- $grace := hasKey $server "grace_seconds" | ternary $server.grace_seconds 10 -}}
{{- add (ceil $grace | int) (int .Values.preStopSeconds) 10 -}}
{{- end -}}

{{/* The ports of all addresses that Temper calls, as JSON. What is in a variable nobody knows here. */}}
{{- define "temper.ports" -}}
{{- $config := include "temper.config" . | fromJson -}}
{{- $addresses := list (dig "tracing" "url" "" $config) (dig "state" "url" "" $config) -}}
{{- range $one := append (concat (values ($config.models | default dict)) (values ($config.mcp | default dict))) ($config.backend | default dict) -}}
{{- $addresses = concat $addresses (list ($one.url | default "")) ($one.urls | default list) -}}
{{- end -}}
{{- $usual := dict "http" 80 "https" 443 "valkey" 6379 "valkeys" 6379 "redis" 6379 "rediss" 6379 -}}
{{- $ports := list -}}
{{- range $addresses -}}
{{- $scheme := regexFind "^[a-z]+" . -}}
{{- $host := regexReplaceAll "^[a-z]+://([^/?#]*@)?([^/?#]*).*$" . "${2}" -}}
{{- $port := regexFind ":[0-9]+$" $host | trimPrefix ":" -}}
{{- $isHere := regexMatch "^(127\\.|localhost|\\[::1\\])" $host -}}
{{- if and (hasKey $usual $scheme) (not $isHere) (not (contains "${" $host)) -}}
{{- $ports = append $ports (int ($port | default (get $usual $scheme))) -}}
{{- end -}}
{{- end -}}
{{- $ports | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* What no schema can say: values that are fine alone and wrong together. */}}
{{- define "temper.contradictions" -}}
{{- $backend := .Values.config.backend | default dict -}}
{{- $hasAddress := or $backend.url $backend.urls -}}
{{- if not (or .Values.existingSecret .Values.keyFromElsewhere) }}
{{- fail "\n\nexistingSecret is empty, and Temper needs a key that clients send. Make a Secret:\n\n  kubectl create secret generic temper-key --from-literal=api-key=\"$(openssl rand -hex 16)\"\n\nand name it: --set existingSecret=temper-key. If the key comes another way (extraEnv, or a file\nin extraVolumes): --set keyFromElsewhere=true." -}}
{{- end -}}
{{- if and .Values.existingSecret .Values.keyFromElsewhere }}
{{- fail "existingSecret and keyFromElsewhere contradict each other: empty one of the two" -}}
{{- end -}}
{{- if and .Values.backends $hasAddress }}
{{- fail "backends and config.backend.url(s) contradict each other: name the engines in one place" -}}
{{- end -}}
{{- if and .Values.stateSecret (not (dig "state" "url" "" .Values.config)) }}
{{- fail "stateSecret seals what is kept at config.state.url, and there is none" -}}
{{- end -}}
{{- if or (dig "model" "path" "" .Values.config) (dig "model" "hf_repo" "" .Values.config) }}
{{- fail "config.model starts a llama-server, and Temper's image holds none: use shape=unit and engine.model" -}}
{{- end -}}
{{- if eq .Values.shape "unit" }}
{{- include "temper.contradictionsOfUnits" . -}}
{{- else }}
{{- if not (or .Values.backends $hasAddress .Values.config.models) }}
{{- fail "a pool needs engines: --set 'backends={http://vllm-0:8000,http://vllm-1:8000}', or config.models; or shape=unit" -}}
{{- end -}}
{{- if .Values.autoscaling.enabled }}
{{- fail "autoscaling is for shape=unit: more Tempers before the same engines make them no faster" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "temper.contradictionsOfUnits" -}}
{{- $backend := .Values.config.backend | default dict -}}
{{- if or .Values.backends .Values.backendSecret $backend.url $backend.urls .Values.config.models }}
{{- fail "a unit has an engine of its own: backends, backendSecret, config.backend.url(s) and config.models are for shape=pool" -}}
{{- end -}}
{{- if not .Values.engine.modelVolume }}
{{- fail "engine.modelVolume is empty: name the volume that holds engine.model, e.g. {persistentVolumeClaim: {claimName: models}}" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas is more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- end -}}

{{/* What containers may do: nothing that needs a privilege. */}}
{{- define "temper.securityContext" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end -}}

{{- define "temper.probe" -}}
httpGet:
  path: {{ . }}
  port: http
{{- end -}}
