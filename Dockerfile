# syntax=docker/dockerfile:1
# Two images: `server` (the default), and `spark` with Spark and Java for the pipeline.
#   docker build -t strandline .
#   docker build -t strandline:sql --build-arg EXTRAS=server,sql,lake .
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

# The environment of the pipeline.
FROM python:${PYTHON}-slim AS spark-environment
RUN pip install --no-cache-dir uv
COPY requirements.lock /
COPY --from=wheel /wheel /wheel
RUN uv venv /opt/strandline-spark \
    && uv pip install --python /opt/strandline-spark/bin/python --verify-hashes \
        --constraint /requirements.lock "strandline[all] @ file://$(echo /wheel/*.whl)" \
    # Parts of Arrow that only programs in C++ use, and its tests.
    && cd /opt/strandline-spark/lib/python*/site-packages/pyarrow && rm -rf include tests

FROM python:${PYTHON}-slim AS spark
RUN useradd --system --uid 10001 --create-home strandline && install -d -o strandline /data /lake
ENV STRANDLINE_HOST=0.0.0.0 STRANDLINE_DATA_DIR=/data/strandline
USER strandline
WORKDIR /home/strandline
VOLUME ["/data", "/lake"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["strandline"]
COPY --from=spark-environment /opt/strandline-spark /opt/strandline-spark
ENV PATH=/opt/strandline-spark/bin:$PATH
CMD ["pipeline", "run", "--continuous"]

# All files of the server's image: its environment, Python, and the libraries of the system that they load.
FROM python:${PYTHON}-slim AS root
ARG EXTRAS=server
RUN apt-get update && apt-get install --yes --no-install-recommends binutils && pip install --no-cache-dir uv \
    && useradd --system --uid 10001 strandline
COPY requirements.lock /
COPY --from=wheel /wheel /wheel
COPY tools/image_root.py /
RUN uv venv /opt/strandline \
    && uv pip install --python /opt/strandline/bin/python --verify-hashes --link-mode copy \
        --constraint /requirements.lock "strandline[$EXTRAS] @ file://$(echo /wheel/*.whl)" \
    && /opt/strandline/bin/python /image_root.py /opt/strandline /image \
    && install --directory --mode 1777 /writable/tmp \
    && install --directory /writable/data /writable/lake /writable/home/strandline

FROM scratch AS server
COPY --from=root /image /
COPY --from=root --chown=10001:10001 /writable /
ENV PATH=/opt/strandline/bin:/usr/bin:/bin LANG=C.UTF-8 HOME=/home/strandline \
    STRANDLINE_HOST=0.0.0.0 STRANDLINE_DATA_DIR=/data/strandline STRANDLINE_PIPELINE=off
USER strandline
WORKDIR /home/strandline
VOLUME ["/data", "/lake"]
EXPOSE 4000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as request; request.urlopen('http://127.0.0.1:4000/healthz', timeout=4)"]
ENTRYPOINT ["strandline"]
CMD ["serve"]
