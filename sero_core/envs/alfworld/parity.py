"""Native against stock engine, side by side: `python -m sero_core.envs.alfworld.parity DATA_ROOT`.

Every game is played twice on both engines: its walkthrough with disturbances and some commands past
the end, then a random walk. After each command the text, the admissible commands in order, won, the
facts, and the incremental digest of the facts must be the same. Finished games are appended to the
`--resume` file, so a run can be stopped and continued.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from sero_core.envs.alfworld import native
from sero_core.envs.alfworld.compiler import compile_game
from sero_core.envs.alfworld.domain import UnsupportedGame
from sero_core.envs.alfworld.game import ENGINE_VERSION, Game
from sero_core.envs.alfworld.memoize import memoize_stock_engine
from sero_core.envs.alfworld.reference import ReferenceSession
from sero_core.envs.alfworld.tasks import SPLITS, DataError, list_tasks
from sero_core.types import Task

_NOISE = ("", " ", "dance", "take mug from desk", "go to nowhere 1", "examine", "open", "use 1")
_NUM_PAST_END = 3
_APPLIANCES = frozenset({"sinkbasin", "microwave", "fridge", "countertop", "diningtable"})
_VERB_WEIGHTS = {
    **dict.fromkeys(("heat", "cool", "clean", "slice"), 6),
    **dict.fromkeys(("go", "open", "take", "use"), 4),
    **dict.fromkeys(("move", "examine", "look", "close"), 2),
    **dict.fromkeys(("inventory", "help"), 1),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome for one game. `differences` is empty when the engines agree."""

    task_id: str
    engine_version: int
    num_states: int
    num_random_steps: int
    differences: tuple[str, ...]


def compare_game(task: Task, session: ReferenceSession, num_random_steps: int = 20) -> Comparison:
    """Play one game on both engines; the commands depend only on the task id."""
    raw = Path(task.path).read_bytes()
    try:
        game = compile_game(raw)
    except UnsupportedGame as reason:
        return Comparison(task.task_id, ENGINE_VERSION, 0, num_random_steps, (str(reason),))
    session.load(raw)
    num_states = 0
    for plan in (_guided_plan(raw), ("?",) * num_random_steps):
        rng = random.Random(f"{task.task_id}/{len(plan)}")
        pair = _Pair(game, session)
        differences = pair.differences()
        for planned in plan:
            if not differences:
                pair.step(_random_command(rng, pair) if planned == "?" else planned)
                differences = pair.differences()
        num_states += pair.num_states
        if differences:
            named = tuple(f"{task.task_id} after {pair.last!r}: {text}" for text in differences)
            return Comparison(task.task_id, ENGINE_VERSION, num_states, num_random_steps, named)
    return Comparison(task.task_id, ENGINE_VERSION, num_states, num_random_steps, ())


class _Pair:
    """The two engines in what should be the same state."""

    def __init__(self, game: Game, session: ReferenceSession) -> None:
        self._game, self._session = game, session
        self._state, self._shown = native.initial_state(game), native.intro(game)
        self.stock = session.reset()
        self.last = "reset"
        self.num_states = 1

    def step(self, command: str) -> None:
        self._state, self._shown = native.step(self._game, self._state, command)
        self.stock = self._session.step(command)
        self.last = command
        self.num_states += 1

    def differences(self) -> list[str]:
        """What differs now, each as `what: native / stock`."""
        game, state = self._game, self._state
        facts, stock_facts = native.facts(game, state), self._session.facts()
        found = {
            "text": (self._shown, self.stock.text),
            "admissible": (native.admissible(game, state), self.stock.admissible),
            "won": (native.is_won(game, state), self.stock.is_won),
            "facts": (sorted(facts - stock_facts), sorted(stock_facts - facts)),
            "digest": (state.digest, self._session.facts_digest()),
        }
        if facts == stock_facts:
            del found["facts"]
        return [f"{what}: {a!r} / {b!r}" for what, (a, b) in found.items() if a != b]


def _guided_plan(raw: bytes) -> tuple[str, ...]:
    """The walkthrough with a random command (`?`) before every second step, and some past the end.

    A random command may make a later one inadmissible; that is compared too.
    """
    walkthrough: list[str] = json.loads(raw).get("walkthrough") or []
    plan: list[str] = []
    for index, command in enumerate(walkthrough):
        plan.extend(["?"] * (index % 2))
        plan.append(command)
    return (*plan, *("?",) * _NUM_PAST_END)


def _random_command(rng: random.Random, pair: _Pair) -> str:
    """Admissible mostly, with a preference for rare verbs; else invalid, odd or repeated."""
    draw = rng.random()
    admissible = pair.stock.admissible
    if draw < 0.06:
        return rng.choice(_NOISE)
    if draw < 0.12:
        chosen = rng.choice(admissible)
        return rng.choice((f"  {chosen} ", chosen[:-1], chosen.upper(), f"{chosen} {chosen}"))
    if draw < 0.18:
        return pair.last
    by_verb: dict[str, list[str]] = {}
    for command in admissible:
        by_verb.setdefault(command.split()[0], []).append(command)
    if rng.random() < 0.4:  # appliances, which a uniform choice seldom visits
        known = by_verb.get("go", [])
        by_verb["go"] = [place for place in known if place.split()[2] in _APPLIANCES] or known
    verbs = [verb for verb, commands in by_verb.items() if commands]
    verb = rng.choices(verbs, [_VERB_WEIGHTS[verb] for verb in verbs])[0]
    return rng.choice(by_verb[verb])


def compare_tasks(
    tasks: Sequence[Task], num_workers: int, is_plain: bool, num_random_steps: int
) -> Iterator[Comparison]:
    """Compare games in worker processes, in any order."""
    work = partial(_compare_in_worker, is_plain=is_plain, num_random_steps=num_random_steps)
    if num_workers == 1:
        yield from map(work, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(num_workers) as pool:
        yield from pool.imap_unordered(work, tasks)


_session: ReferenceSession | None = None


def _compare_in_worker(task: Task, is_plain: bool, num_random_steps: int) -> Comparison:
    global _session
    if _session is None:
        if not is_plain:
            memoize_stock_engine()
        _session = ReferenceSession()
    return compare_game(task, _session, num_random_steps)


def all_tasks(data_root: Path) -> list[Task]:
    """The games of every split that is there."""
    tasks: list[Task] = []
    for split in SPLITS:
        if any((data_root / part / split).is_dir() for part in ("json_2.1.1", "")):
            tasks.extend(list_tasks(data_root, split))
    if not tasks:
        raise DataError(f"no split of {SPLITS} in {data_root}")
    return tasks


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data_root", type=Path)
    parser.add_argument("--limit", type=int, help="stop after this many games, chosen at random")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="length of the random walk")
    parser.add_argument("--resume", type=Path, help="file of finished games")
    parser.add_argument("--plain", action="store_true", help="do not memoize the stock engine")
    options = parser.parse_args(arguments)
    tasks = all_tasks(options.data_root)
    random.Random(0).shuffle(tasks)
    tasks = tasks[: options.limit]
    done = _read_finished(options.resume, options.steps)
    finished = [done[task.task_id] for task in tasks if task.task_id in done]
    waiting = [task for task in tasks if task.task_id not in done]
    for comparison in compare_tasks(waiting, options.workers, options.plain, options.steps):
        finished.append(comparison)
        if options.resume is not None:
            with options.resume.open("a") as stream:
                stream.write(json.dumps(asdict(comparison)) + "\n")
        if comparison.differences or len(finished) % 20 == 0:
            _say(f"{len(finished)}/{len(tasks)} games", *comparison.differences)
    different = [item for item in finished if item.differences]
    num_states = sum(item.num_states for item in finished)
    _say(f"{len(finished)} games, {num_states} states compared, {len(different)} games differ")
    return 1 if different else 0


def _read_finished(path: Path | None, num_random_steps: int) -> dict[str, Comparison]:
    """Finished games of an earlier run with the same engine version and walk length."""
    if path is None or not path.exists():
        return {}
    lines = (line for line in path.read_text().splitlines() if line.endswith("}"))
    found = [
        Comparison(
            task_id=row["task_id"],
            engine_version=row["engine_version"],
            num_states=row["num_states"],
            num_random_steps=row["num_random_steps"],
            differences=tuple(row["differences"]),
        )
        for row in map(json.loads, lines)
    ]
    wanted = (ENGINE_VERSION, num_random_steps)
    return {
        item.task_id: item
        for item in found
        if (item.engine_version, item.num_random_steps) == wanted and not item.differences
    }


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
