"""ALFWorld as an `Environment`: one live episode on the native or the reference engine."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from sero_core.envs.alfworld import native
from sero_core.envs.alfworld.cache import load_game, read_checked
from sero_core.envs.alfworld.domain import UnsupportedGame
from sero_core.envs.alfworld.game import Fact, Game
from sero_core.envs.alfworld.hashing import state_hash
from sero_core.envs.alfworld.reference import ReferenceSession
from sero_core.types import Observation, RestoreMismatch, Snapshot, Task

EngineName = Literal["native", "reference"]
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moment:
    """The native engine's snapshot handle: a state and what was shown in it."""

    game: Game
    state: native.State
    observation: Observation


class Session(Protocol):
    """One game being played."""

    def reset(self) -> Observation: ...

    def step(self, action: str) -> Observation: ...

    def facts(self) -> frozenset[Fact]: ...

    def facts_digest(self) -> int: ...


class NativeSession:
    """A cursor over the immutable states of one game."""

    def __init__(self, game: Game) -> None:
        self._game = game
        self.moment = self._start()

    def reset(self) -> Observation:
        self.moment = self._start()
        return self.moment.observation

    def step(self, action: str) -> Observation:
        before = self.moment.state
        after, shown = native.step(self._game, before, action)
        if after == before:
            observation = Observation(
                shown,
                self.moment.observation.admissible,
                self.moment.observation.is_won,
                self.moment.observation.is_terminated,
            )
        else:
            observation = _observe(self._game, after, shown)
        self.moment = Moment(self._game, after, observation)
        return observation

    def jump(self, moment: Moment) -> bool:
        """Continue from a moment of the same game; False if it belongs to another one."""
        if moment.game.content_hash != self._game.content_hash:
            return False
        self.moment = moment
        return True

    def facts(self) -> frozenset[Fact]:
        return native.facts(self._game, self.moment.state)

    def facts_digest(self) -> int:
        return self.moment.state.digest

    def _start(self) -> Moment:
        state = native.initial_state(self._game)
        observation = _observe(self._game, state, native.intro(self._game))
        return Moment(self._game, state, observation)


class AlfworldEnv:
    """`Environment` for `game.tw-pddl` files.

    `engine="native"` plays games whose logic is known natively and hands any other game, with a
    warning that names it, to the stock engine. `cache_dir` holds compiled games (`cache.py`); None
    is the default directory. Neither a step limit nor a reward is applied here.
    """

    def __init__(self, engine: EngineName = "native", cache_dir: Path | None = None) -> None:
        if engine not in ("native", "reference"):
            raise ValueError(f"engine must be native or reference, got {engine!r}")
        self.engine: EngineName = engine
        self._cache_dir = cache_dir
        self._reference: ReferenceSession | None = None
        self._session: Session | None = None
        self._task: Task | None = None
        self._actions: list[str] = []
        self._observation: Observation | None = None

    def reset(self, task: Task) -> Observation:
        """Start an episode of `task`. ValueError if its file is not the one that was listed."""
        session = self._open(task)
        observation = session.reset()
        self._task, self._session, self._actions = task, session, []
        self._observation = observation
        return observation

    def step(self, action: str) -> Observation:
        self._observation = self._playing().step(action)
        self._actions.append(action)
        return self._observation

    def snapshot(self) -> Snapshot:
        session = self._playing()
        handle = session.moment if isinstance(session, NativeSession) else None
        return Snapshot(self.task.task_id, tuple(self._actions), self.state_hash(), handle)

    def restore(self, snapshot: Snapshot) -> Observation:
        """Go to a recorded state of the current task: at once through its handle, else by replay.

        The hash of the state is computed anew and compared; a difference raises `RestoreMismatch`
        and leaves the environment in the state that was reached.
        """
        session = self._playing()
        if snapshot.task_id != self.task.task_id:
            raise RestoreMismatch(
                f"restore of task {snapshot.task_id}: the environment plays {self.task.task_id}; "
                "reset it to the snapshot's task first"
            )
        handle = snapshot.handle
        is_direct = (
            isinstance(session, NativeSession)
            and isinstance(handle, Moment)
            and session.jump(handle)
        )
        if is_direct and isinstance(handle, Moment):
            observation = handle.observation
        else:
            observation = session.reset()
            for action in snapshot.actions:
                observation = session.step(action)
        self._actions, self._observation = list(snapshot.actions), observation
        got = self.state_hash()
        if got != snapshot.state_hash:
            raise RestoreMismatch(
                f"restore of task {snapshot.task_id} differs at action {len(snapshot.actions)}: "
                f"got {got}, expected {snapshot.state_hash}"
            )
        return observation

    def facts(self) -> frozenset[Fact]:
        return self._playing().facts()

    def state_hash(self) -> str:
        """Hash of the current observation and facts (`Snapshot.state_hash`)."""
        session = self._playing()
        return state_hash(self.observation, session.facts_digest())

    @property
    def observation(self) -> Observation:
        """What the last reset, step or restore returned."""
        if self._observation is None:
            raise RuntimeError("the environment has no episode: call reset first")
        return self._observation

    @property
    def task(self) -> Task:
        if self._task is None:
            raise RuntimeError("the environment has no episode: call reset first")
        return self._task

    def close(self) -> None:
        """Forget the episode. The object can be reset again."""
        self._session = self._task = self._observation = None
        self._actions = []

    def _playing(self) -> Session:
        if self._session is None:
            raise RuntimeError("the environment has no episode: call reset first")
        return self._session

    def _open(self, task: Task) -> Session:
        """The session that plays a task, on the engine that can."""
        if self.engine == "native":
            try:
                return NativeSession(load_game(Path(task.path), task.content_hash, self._cache_dir))
            except UnsupportedGame as reason:
                logger.warning("%s is played by the reference engine: %s", task.path, reason)
        raw = read_checked(Path(task.path), task.content_hash)
        if self._reference is None:
            self._reference = ReferenceSession()
        self._reference.load(raw)
        return self._reference


def _observe(game: Game, state: native.State, shown: str) -> Observation:
    is_won = native.is_won(game, state)
    return Observation(shown, native.admissible(game, state), is_won, is_terminated=is_won)
