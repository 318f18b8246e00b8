# One image for every service of docker-compose.yml.
FROM python:3.11-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends build-essential git \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/sero
ENV PATH=/opt/sero/bin:$PATH
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY sero_core sero_core
COPY backend backend
COPY worker worker
COPY dashboard dashboard
COPY migrations migrations
RUN pip install --no-cache-dir '.[train,alfworld,dashboard]'

FROM python:3.11-slim-bookworm
RUN useradd --create-home --uid 1000 sero && mkdir -p /data && chown sero /data
COPY --from=build /opt/sero /opt/sero
COPY configs /opt/sero/configs
ENV PATH=/opt/sero/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    SERO_HOME=/data \
    SERO_CONFIGS=/opt/sero/configs
USER sero
WORKDIR /data
CMD ["sero", "--help"]
