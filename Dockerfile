# Temper as a sidecar: it needs a running server to talk to (TEMPER_BACKEND__URL) and, because it
# listens on all addresses of the container, a key (TEMPER_SERVER__API_KEY or ..._API_KEY_FILE).
FROM python:3.12-slim AS build
# what is asked for in temper.toml has to be in the image: [mcp.NAME], tracing.url, state.url
ARG EXTRAS=mcp,otel,state
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY proxy ./proxy
COPY temper ./temper
COPY temper_evals ./temper_evals
COPY config/models ./config/models
COPY config/announcements ./config/announcements
COPY config/temper.toml ./config/temper.toml
COPY config/evals ./config/evals
# what `temper --version` tells: --build-arg COMMIT=$(git rev-parse HEAD)
ARG COMMIT=unknown
# without pip, which nobody needs there
RUN echo "${COMMIT}" > proxy/commit.txt && python -m venv --without-pip /opt/temper && \
    pip --python /opt/temper/bin/python install --no-cache-dir ".[${EXTRAS}]"
# nine tenths of this library are symbols for debuggers: 12 MB
RUN { command -v strip || { apt-get update -qq && apt-get install -qq -y --no-install-recommends binutils; }; } && \
    strip --strip-unneeded /opt/temper/lib/python3*/site-packages/uvloop/loop.*.so

FROM python:3.12-slim
RUN groupadd --system --gid 10001 temper && \
    useradd --system --uid 10001 --gid 10001 --no-create-home temper
COPY --from=build /opt/temper /opt/temper
ENV PATH=/opt/temper/bin:$PATH PYTHONUNBUFFERED=1 TEMPER_SERVER__HOST=0.0.0.0
# a number, as Kubernetes cannot tell from a name that it is not root's
USER 10001:10001
EXPOSE 8367
# http.client and not urllib: the latter would go through a proxy that the engine configured
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8367, timeout=2); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
CMD ["temper", "serve"]
