"""A real ALFWorld environment that goes wrong at one step of one task. Importable by workers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

from sero_core.envs.alfworld import AlfworldEnv
from sero_core.types import Observation

STEP = 2


class UnrulyEnv(AlfworldEnv):
    """Plays as usual, but before step `STEP` of `task_id` it hangs, ends its process or raises.

    With `once` a file, it does so only while that file is absent, and creates it.
    """

    def __init__(
        self, task_id: str, fault: Literal["hang", "exit", "raise"], once: Path | None = None
    ) -> None:
        super().__init__()
        self._task_id = task_id
        self._fault = fault
        self._once = once

    def step(self, action: str) -> Observation:
        if self.task.task_id == self._task_id and len(self.snapshot().actions) == STEP:
            self._go_wrong()
        return super().step(action)

    def _go_wrong(self) -> None:
        if self._once is not None:
            if self._once.exists():
                return
            self._once.touch()
        if self._fault == "hang":
            time.sleep(3600)
        if self._fault == "exit":
            os._exit(3)
        raise RuntimeError("the engine lost its mind")
