"""The Celery application: a spawned process for each slot, and a message is only a wake-up.

    celery -A worker.app worker

Messages are acknowledged when they arrive: Postgres knows what is left to do. SIGTERM is Celery's
warm shutdown, which waits for the task: `worker/tasks.py` hears of it and gives the job time to
write a checkpoint, so a job of days does not hold the worker. (The soft shutdown before a cold one
tells nobody until its time is over.)
"""

from __future__ import annotations

from celery import Celery

from backend.settings import Settings

QUEUE = "celery"
RUN_JOB = "worker.run_job"


def own_queue(worker_id: str) -> str:
    """The queue that only this worker reads, beside the common one and those of its labels."""
    return f"worker.{worker_id}"


def make_app(settings: Settings) -> Celery:
    """The application, for the worker and for everyone who sends wake-ups."""
    made = Celery("sero", broker=settings.broker_url, include=["worker.tasks"])
    made.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_acks_late=False,
        worker_pool="prefork",
        worker_concurrency=settings.num_slots,
        worker_pool_start_method="spawn",
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": settings.visibility_timeout_s,
            "unacked_restore_interval": 2,
            "socket_connect_timeout": 2,
        },
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_enable_remote_control=True,
        worker_send_task_events=False,
    )
    return made


app = make_app(Settings.from_env())
