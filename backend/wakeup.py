"""Wake-ups: messages that tell a worker to look at a job. Losing one loses nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol, cast

from celery import Celery
from kombu.connection import Connection
from kombu.exceptions import OperationalError

log = logging.getLogger("sero.wakeup")
TASK = "worker.run_job"
QUEUE = "celery"
CONNECT_TIMEOUT_S = 1.0


def label_queue(label: str) -> str:
    """The queue of the workers with a label."""
    return f"label.{label}"


class Wakeups:
    """Sends job ids to the workers' queue without importing the worker."""

    def __init__(self, broker_url: str) -> None:
        self._app = Celery("sero-wakeup", broker=broker_url, set_as_current=False)
        self._app.conf.update(
            task_publish_retry=False,
            task_ignore_result=True,
            broker_connection_timeout=CONNECT_TIMEOUT_S,
            broker_transport_options={
                "socket_connect_timeout": CONNECT_TIMEOUT_S,
                "socket_timeout": 5.0,
                "max_retries": 0,
            },
        )

    def send(self, job_id: int, labels: Sequence[str] = ()) -> str | None:
        """None = sent; otherwise why not. The job stays queued, and a worker finds it later.

        A job that asks for labels goes to the workers of the first one. A worker that cannot take
        it leaves it alone; another one then finds it by itself within seconds.
        """
        try:
            queue = label_queue(labels[0]) if labels else QUEUE
            self._app.send_task(TASK, args=[job_id], queue=queue)
        except OperationalError as error:
            log.warning("wake-up of job %s was not sent: %s", job_id, error)
            return f"the broker does not answer: {error}"
        return None

    def ping(self) -> str | None:
        """None = the broker answers; otherwise why not."""
        try:
            with cast(_Connecting, self._app).connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
        except OperationalError as error:
            return f"the broker does not answer: {error}"
        return None

    def close(self) -> None:
        self._app.close()


class _Connecting(Protocol):
    def connection_for_write(self) -> Connection: ...
