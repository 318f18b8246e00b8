"""`GET /metrics` in Prometheus' text format: requests of this process, and the state of the queue.

The queue's numbers are read from the database when Prometheus asks, so that they are true whichever
API process answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.db.models import Job, Worker
from backend.routes.deps import ServicesDep

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0)
router = APIRouter(tags=["operation"])


class RequestMetrics:
    """Counts and times the requests of one process, by route (not by path: ids would explode)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "route", "status")
        self._count = Counter("sero_http_requests", "Requests", labels, registry=registry, unit="")
        self._seconds = Histogram(
            "sero_http_request_seconds",
            "Time until the answer had been sent",
            ("method", "route"),
            buckets=BUCKETS_S,
            registry=registry,
        )

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        self._count.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)


class Observed:
    """Pure ASGI middleware that notes every request."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.note(method, route, status, time.perf_counter() - started)


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class QueueCollector:
    """Jobs by kind and state, the age of the oldest waiting job, workers by state."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("sero_database_up", "1 when the database answers")
        try:
            families = self._read()
        except SQLAlchemyError:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        yield from families

    def _read(self) -> list[Metric]:
        jobs = GaugeMetricFamily("sero_jobs", "Jobs", labels=("kind", "state"))
        oldest = GaugeMetricFamily(
            "sero_oldest_queued_job_seconds", "Age of the job that waits longest; 0 = none waits"
        )
        workers = GaugeMetricFamily("sero_workers", "Workers", labels=("state",))
        is_alive = Worker.stopped_at.is_(None) & (Worker.lease_expires_at > func.now())
        age = func.extract("epoch", func.clock_timestamp() - func.min(Job.queued_at))
        with self._engine.connect() as connection:
            counts = select(Job.kind, Job.state, func.count()).group_by(Job.kind, Job.state)
            for kind, state, number in connection.execute(counts):
                jobs.add_metric([kind, state], number)
            waiting = select(func.coalesce(age, 0)).where(Job.state == "queued")
            oldest.add_metric([], float(connection.execute(waiting).scalar_one()))
            alive = select(func.count()).select_from(Worker).where(is_alive)
            silent = (
                select(func.count())
                .select_from(Worker)
                .where(Worker.stopped_at.is_(None), ~is_alive)
            )
            workers.add_metric(["alive"], connection.execute(alive).scalar_one())
            workers.add_metric(["silent"], connection.execute(silent).scalar_one())
        return [jobs, oldest, workers]


def make_registry(engine: Engine) -> tuple[CollectorRegistry, RequestMetrics]:
    """The registry of one application, and what its middleware writes to."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(QueueCollector(engine))
    return registry, RequestMetrics(registry)


@router.get("/metrics", response_class=Response)
def prometheus(services: ServicesDep) -> Response:
    """The figures of this server in Prometheus' text format (scope read)."""
    return Response(generate_latest(services.registry), media_type=CONTENT_TYPE_LATEST)
