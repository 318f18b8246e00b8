"""The Celery application: one job at a time, in a spawned process, and a message is only a wake-up.

    celery -A worker.app worker

Messages are acknowledged when they arrive: Postgres knows what is left to do. SIGTERM is remapped
to the shutdown that does not wait for a job of days (`REMAP_SIGTERM=SIGQUIT`, set below): the job
gets time to write a checkpoint and goes back to the queue.
"""

from __future__ import annotations

import os

os.environ.setdefault("REMAP_SIGTERM", "SIGQUIT")

from celery import Celery

from backend.settings import Settings

QUEUE = "celery"
RUN_JOB = "worker.run_job"
SOFT_SHUTDOWN_S = 75.0
VISIBILITY_TIMEOUT_S = 3600


def make_app(broker_url: str) -> Celery:
    """The application, for the worker and for everyone who sends wake-ups."""
    made = Celery("sero", broker=broker_url, include=["worker.tasks"])
    made.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_acks_late=False,
        worker_pool="prefork",
        worker_concurrency=1,
        worker_pool_start_method="spawn",
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_soft_shutdown_timeout=SOFT_SHUTDOWN_S,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_restore_interval": 2,
            "socket_connect_timeout": 2,
        },
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_enable_remote_control=True,
        worker_send_task_events=False,
    )
    return made


app = make_app(Settings.from_env().broker_url)
