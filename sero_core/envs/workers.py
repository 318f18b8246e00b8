"""Environments in worker processes: more cores, and an engine that hangs or crashes costs only its
own episodes.

Each worker owns a contiguous block of a collection's slots. What a slot plays is decided by the
caller (task and actions), so the number of workers changes no record. Processes are spawned, not
forked: the parent's torch threads and locks are not in them.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import struct
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from sero_core.envs.vector import Lost, Reached
from sero_core.types import Environment, SeroError, Snapshot, Task

logger = logging.getLogger(__name__)

Request = tuple[int, Task | str]
"""(place in the worker's block, the task to start or the action to execute)."""
Reply = list[Reached | Lost]

START_S = 120.0
"""Seconds a new worker may take to import its code."""
START_ATTEMPTS = 3
SIGN_OF_LIFE_S = 0.5
"""A worker that is busy for longer says so between two environments, so that the deadline is one
environment's and does not depend on how many a worker has."""


class WorkerError(SeroError):
    """A worker that never starts, or a game that no worker can start: an error of the setup."""


class WorkerEnvs:
    """A `VectorEnv` over `num_workers` processes. `make` must be picklable.

    A worker that does not finish one environment's reset or step within `deadline_s`, or that
    dies, is killed and replaced; its slots are `Lost` until the next reset. So is a single slot
    whose step raises. Errors: `WorkerError` if a worker cannot be started, or if an environment
    refuses to reset (a missing package, a damaged game): that would lose every episode alike.
    """

    def __init__(
        self, make: Callable[[], Environment], num_workers: int, deadline_s: float
    ) -> None:
        self._workers = [_Worker(index, make, deadline_s) for index in range(num_workers)]
        self._places: list[tuple[_Worker, int]] = []
        self._lost: dict[int, Lost] = {}

    @property
    def pids(self) -> list[int]:
        """Process ids in the order of the blocks."""
        return [worker.pid for worker in self._workers]

    def reset(self, tasks: Sequence[Task]) -> list[Reached | Lost]:
        count, blocks = len(tasks), len(self._workers)
        self._lost = {}
        self._places = []
        for index, worker in enumerate(self._workers):
            size = count * (index + 1) // blocks - count * index // blocks
            self._places += [(worker, place) for place in range(size)]
        return self._call(range(count), tasks)

    def step(self, slots: Sequence[int], actions: Sequence[str]) -> list[Reached | Lost]:
        return self._call(slots, actions)

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._places = []

    def _call(
        self, slots: Sequence[int], arguments: Sequence[Task] | Sequence[str]
    ) -> list[Reached | Lost]:
        """All workers get their part before any is waited for."""
        requests: dict[_Worker, list[Request]] = {worker: [] for worker in self._workers}
        for slot, argument in zip(slots, arguments, strict=True):
            if slot not in self._lost:
                worker, place = self._places[slot]
                requests[worker].append((place, argument))
        asked = {worker: worker.ask(part) for worker, part in requests.items() if part}
        answers: dict[tuple[_Worker, int], Reached | Lost] = {}
        for worker, is_asked in asked.items():
            answer = worker.answer(len(requests[worker])) if is_asked else worker.replaced()
            if isinstance(answer, Lost):
                self._lose_block(worker, answer)
            else:
                for (place, _), item in zip(requests[worker], answer, strict=True):
                    answers[worker, place] = item
        for slot in slots:
            item = answers.get(self._places[slot])
            if isinstance(item, Lost):
                self._lost[slot] = item
        return [self._lost.get(slot) or answers[self._places[slot]] for slot in slots]

    def _lose_block(self, worker: _Worker, lost: Lost) -> None:
        for slot, (owner, _) in enumerate(self._places):
            if owner is worker:
                self._lost.setdefault(slot, lost)


class _Worker:
    """One process, started on first need and started again when it had to be killed."""

    def __init__(self, index: int, make: Callable[[], Environment], deadline_s: float) -> None:
        self._index = index
        self._make = make
        self._deadline_s = deadline_s
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._is_ready = False
        self._launch()

    @property
    def pid(self) -> int:
        return (self._process.pid if self._process else None) or 0

    def ask(self, requests: list[Request]) -> bool:
        """Send; False if the worker does not take it."""
        pipe = self._ready()
        try:
            pipe.send(requests)
        except OSError:
            return False
        return True

    def answer(self, count: int) -> Reply | Lost:
        """The reply to what was asked, or why there is none; then the worker is replaced."""
        pipe = self._ready()
        try:
            while (message := pipe.recv()) is None:
                pass
        except (EOFError, OSError) as error:
            return self.replaced(is_late=isinstance(error, BlockingIOError))
        if isinstance(message, str):
            raise WorkerError(message)
        if not isinstance(message, list) or len(message) != count:
            raise WorkerError(f"environment worker {self._index} sent an unexpected reply")
        return message

    def replaced(self, is_late: bool = False) -> Lost:
        """Kill the process, start another, and say what was wrong with the old one."""
        pid = self.pid
        code = self._kill(patience_s=0.0 if is_late else 10.0)
        what = f"no answer within {self._deadline_s:g} s, killed" if is_late else _ending(code)
        reason = f"environment worker {self._index} (pid {pid}): {what}"
        logger.warning("%s; a new worker takes its place", reason)
        self._launch()
        return Lost(reason)

    def stop(self) -> None:
        """End the process: it leaves when its pipe closes, and is killed when it does not."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        self._kill(patience_s=1.0)

    def _ready(self) -> Connection:
        """The pipe to a process that has finished its imports."""
        for _ in range(START_ATTEMPTS):
            if self._pipe is None:
                self._launch()
            elif self._is_ready or self._has_started(self._pipe):
                self._is_ready = True
                return self._pipe
            else:
                self._kill()
        raise WorkerError(
            f"environment worker {self._index} does not start ({START_ATTEMPTS} attempts, "
            f"{START_S:g} s each); its error is above"
        )

    def _has_started(self, pipe: Connection) -> bool:
        try:
            return pipe.poll(START_S) and pipe.recv() is None
        except (EOFError, OSError):
            return False

    def _launch(self) -> None:
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        _limit(mine, self._deadline_s)
        self._process = context.Process(
            target=serve,
            args=(theirs, self._make),
            name=f"sero-env-{self._index}",
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self._pipe = mine
        self._is_ready = False

    def _kill(self, patience_s: float = 0.0) -> int | None:
        """Kill what has not ended by itself after `patience_s`; returns the exit code."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is None:
            return None
        self._process.join(patience_s)
        self._process.kill()
        self._process.join()
        code = self._process.exitcode
        self._process.close()
        self._process = None
        return code


def serve(pipe: Connection, make: Callable[[], Environment]) -> None:
    """The worker's loop: answer requests until the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent acts
    envs: list[Environment] = []
    try:
        pipe.send(None)
        while True:
            pipe.send(_serve_one(pipe, envs, make, pipe.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _serve_one(
    pipe: Connection,
    envs: list[Environment],
    make: Callable[[], Environment],
    requests: Sequence[Request],
) -> Reply | str:
    """The reply: one entry per request, or the error of an environment that refused to reset."""
    reply: Reply = []
    said = time.monotonic()
    for place, argument in requests:
        if isinstance(argument, Task):
            try:
                while len(envs) <= place:
                    envs.append(make())
                observation = envs[place].reset(argument)
            except Exception:
                return f"task {argument.task_id} cannot be started:\n{traceback.format_exc()}"
            reply.append(Reached(observation, _portable(envs[place])))
        else:
            reply.append(_step(envs, place, argument, make))
        if time.monotonic() - said > SIGN_OF_LIFE_S:
            pipe.send(None)
            said = time.monotonic()
    return reply


def _step(
    envs: list[Environment], place: int, action: str, make: Callable[[], Environment]
) -> Reached | Lost:
    env = envs[place]
    try:
        return Reached(env.step(action), _portable(env))
    except Exception as error:  # costs this episode, by name, and no other
        logger.warning("step %r failed", action, exc_info=True)
        envs[place] = make()
        return Lost(f"step {action!r} raised {type(error).__name__}: {error}")


def _portable(env: Environment) -> Snapshot:
    return replace(env.snapshot(), handle=None)


def _limit(pipe: Connection, deadline_s: float) -> None:
    """A send or receive of this end that is blocked for `deadline_s` raises BlockingIOError."""
    seconds, rest = divmod(deadline_s, 1.0)
    limit = struct.pack("@ll", int(seconds), int(rest * 1e6))
    with socket.fromfd(pipe.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"ended by signal {-code}"
    return f"ended with exit code {code}"
