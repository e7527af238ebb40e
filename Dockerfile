# syntax=docker/dockerfile:1
# Two images: `server` (the default), and `spark` with Spark and Java for the pipeline.
#   docker build -t strandline .
#   docker build -t strandline:spark --target spark .

ARG PYTHON=3.12

# The wheel, with the documentation that the server shows at /docs.
FROM python:${PYTHON}-slim AS wheel
RUN pip install --no-cache-dir uv
WORKDIR /source
COPY . .
RUN uv venv /build \
    && uv pip install --python /build/bin/python --verify-hashes --constraint requirements.lock \
        hatchling mkdocs-material "mkdocstrings[python]" \
    && uv pip install --python /build/bin/python --constraint requirements.lock --no-build-isolation -e ".[all]" \
    && PATH="/build/bin:$PATH" mkdocs build --quiet \
    && /build/bin/python -m hatchling build --target wheel --directory /wheel

# The environments of both images. Compiling in advance makes the first start quick on a read-only root.
FROM python:${PYTHON}-slim AS environments
RUN pip install --no-cache-dir uv
COPY requirements.lock /
COPY --from=wheel /wheel /wheel
RUN wheel="$(echo /wheel/*.whl)" \
    && uv venv /opt/strandline \
    && uv pip install --python /opt/strandline/bin/python --compile-bytecode --verify-hashes \
        --constraint /requirements.lock "strandline[server] @ file://$wheel" \
    && uv venv /opt/strandline-spark \
    && uv pip install --python /opt/strandline-spark/bin/python --verify-hashes \
        --constraint /requirements.lock "strandline[all] @ file://$wheel" \
    # Parts of Arrow that only programs in C++ use, and its tests.
    && rm -rf /opt/*/lib/python*/site-packages/pyarrow/include /opt/*/lib/python*/site-packages/pyarrow/tests

FROM python:${PYTHON}-slim AS base
RUN useradd --system --uid 10001 --create-home strandline && install -d -o strandline /data /lake
ENV PATH=/opt/strandline/bin:$PATH STRANDLINE_HOST=0.0.0.0 STRANDLINE_DATA_DIR=/data/strandline
USER strandline
WORKDIR /home/strandline
VOLUME ["/data", "/lake"]
EXPOSE 4000
STOPSIGNAL SIGTERM
ENTRYPOINT ["strandline"]

FROM base AS spark
COPY --from=environments /opt/strandline-spark /opt/strandline-spark
ENV PATH=/opt/strandline-spark/bin:$PATH
CMD ["pipeline", "run", "--continuous"]

FROM base AS server
COPY --from=environments /opt/strandline /opt/strandline
ENV STRANDLINE_PIPELINE=off
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as request; request.urlopen('http://127.0.0.1:4000/healthz', timeout=4)"]
CMD ["serve"]
