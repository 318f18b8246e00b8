"""The HTTP API.

    uvicorn --factory backend.main:create_app

Imports no torch: the run config is validated by the same classes that the trainer uses, and those
import torch only where they compute.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

import anyio.to_thread
from fastapi import FastAPI
from fastapi.routing import APIRoute

from backend import errors, observe
from backend.changes import Changes
from backend.client import PREFIX
from backend.db.engine import make_engine
from backend.etag import ETags
from backend.routes import (
    branches,
    compare,
    deletion,
    exports,
    imports,
    jobs,
    operation,
    records,
    runs,
    stream,
    sweeps,
    tokens,
)
from backend.routes.deps import Services
from backend.schemas import ErrorResponse
from backend.security.gate import Gate, Rules, origin_of
from backend.settings import Settings
from backend.wakeup import Wakeups

POOL_SIZE = 20
ROUTES = (
    runs,
    jobs,
    sweeps,
    deletion,
    stream,
    compare,
    records,
    branches,
    exports,
    imports,
    operation,
    tokens,
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """The ASGI application; connects on the first request. None = settings of the environment."""
    chosen = settings or Settings.from_env()
    engine = make_engine(chosen.database_url, pool_size=POOL_SIZE, name="sero-api")
    registry, request_metrics = observe.make_registry(engine)
    services = Services(
        settings=chosen,
        engine=engine,
        wakeups=Wakeups(chosen.broker_url),
        registry=registry,
        changes=Changes(chosen.database_url),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        # as many threads as connections, so that no request waits for one
        anyio.to_thread.current_default_thread_limiter().total_tokens = POOL_SIZE
        yield
        await services.changes.close()
        services.engine.dispose()
        services.wakeups.close()

    app = FastAPI(
        title="SERO Lab",
        version=version("sero-lab"),
        summary="Submit runs, follow them, and look into every branch.",
        description=(
            "Lists are read page by page: pass `next_cursor` as `cursor`. Times are UTC. A number "
            "that is `null` was not finite. Every error has the shape `ErrorResponse`, and every "
            "answer the header `X-Request-Id`."
        ),
        lifespan=lifespan,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=f"{PREFIX}/docs",
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        responses={422: {"model": ErrorResponse}, "default": {"model": ErrorResponse}},
    )
    app.state.services = services
    app.add_middleware(ETags)
    app.add_middleware(Gate, engine=services.engine, rules=_rules(chosen))
    app.add_middleware(observe.Observed, metrics=request_metrics)
    errors.install(app, chosen.allowed_hosts)
    app.include_router(observe.router)
    for module in ROUTES:
        app.include_router(module.router, prefix=PREFIX)
    return app


def _rules(settings: Settings) -> Rules:
    return Rules(
        is_token_required=settings.require_token,
        origins=frozenset({origin_of(settings.api_url), origin_of(settings.dashboard_url)}),
        max_body_bytes=settings.max_body_bytes,
        max_import_bytes=settings.max_import_bytes,
    )


def _operation_id(route: APIRoute) -> str:
    return route.name
