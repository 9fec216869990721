# Serves the index that is mounted at /index: docker run -v ./index:/index:ro -p 8000:8000 -e TOPHIT_TOKEN=... tophit
# For a GPU: docker build --build-arg BASE=nvidia/cuda:12.6.3-runtime-ubuntu24.04 --build-arg DEVICE=cuda .
ARG BASE=debian:bookworm-20250520-slim
FROM ${BASE}

ARG DEVICE=cpu
ARG EXTRAS=hub
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/tophit/bin:$PATH TOPHIT_CACHE=/cache

# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/tophit \
 && useradd --create-home --uid 10001 tophit \
 && mkdir -p /index /cache \
 && chown tophit:tophit /index /cache

WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
# constraints.txt pins a torch that is small without a GPU; with one, torch chooses its own libraries.
RUN if [ "$DEVICE" = cuda ]; then grep -v '^torch==' constraints.txt > /tmp/pins; else cp constraints.txt /tmp/pins; fi \
 && pip install -c /tmp/pins ".[${EXTRAS},map,onnx,report,serve]" \
 && rm -rf /src/* /tmp/pins

COPY --chmod=755 docker/serve.sh /usr/local/bin/serve-index
USER 10001
WORKDIR /home/tophit
VOLUME ["/index", "/cache"]
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
ENTRYPOINT ["serve-index"]
CMD ["/index"]
