"""Native ALFWorld engine against the stock engine, side by side in one run.

    python benchmarks/alfworld.py [--quick] [--json FILE] [--data DIR]

Both engines play the same games with the same random admissible actions in the same process; times
are CPU time, so that other jobs disturb little. Games: 30 of valid_seen from `--data` or
`$SERO_DATA`, else 30 generated ones. `--quick` gives the stock engine a few games and steps.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from sero_core.envs.alfworld import AlfworldEnv, list_tasks
from sero_core.envs.alfworld.cache import clear_memory, compile_directory
from sero_core.envs.alfworld.env import EngineName
from sero_core.envs.alfworld.generator import generate
from sero_core.types import Task

NUM_GAMES = 30
DEPTH = 40
TARGETS = {
    "step_ratio": (">=", 100.0),
    "load_reset_ratio": (">=", 300.0),
    "restore_us": ("<=", 20.0),
    "memory_1000_envs_mb": ("<=", 500.0),
    "growth_mb": ("<=", 5.0),
    "two_process_ratio": (">=", 1.8),
}


@dataclass(frozen=True, slots=True)
class Figures:
    """The results; ms and us are CPU time, `two_process_wall_ratio` is wall time."""

    data: str
    num_games: int
    stock_load_reset_ms: float
    native_load_reset_ms: float
    load_reset_ratio: float
    stock_step_ms: float
    native_step_ms: float
    step_ratio: float
    snapshot_us: float
    restore_us: float
    replay_ms: float
    memory_1000_envs_mb: float
    num_episodes: int
    growth_mb: float
    two_process_ratio: float
    two_process_wall_ratio: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="within 50 s")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--data", type=Path, default=os.environ.get("SERO_DATA"))
    options = parser.parse_args()
    # this script is itself called alfworld: its folder must not hide the stock engine's package
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options.data, is_quick=options.quick)
    report(figures)
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(figures), indent=2) + "\n")
    return 0


def measure(folder: Path, data: Path | None, *, is_quick: bool) -> Figures:
    source, tasks = games(folder, data)
    cache = folder / "cache"
    for task in tasks:
        compile_directory(Path(task.path).parent, cache)
    num_stock = 4 if is_quick else NUM_GAMES
    num_steps = 10 if is_quick else 30
    chosen = sorted(tasks, key=lambda task: task.content_hash)[:num_stock]
    stock_load, stock_step = timed_play("reference", chosen, num_steps, cache)
    native_load, native_step = timed_play("native", chosen, num_steps, cache)
    snapshot, restore, replay = timed_restore(tasks, cache)
    num_episodes = 1_000 if is_quick else 10_000
    memory = in_new_process(memory_of_1000, tasks, cache, 1_000)
    growth = in_new_process(growth_over_episodes, tasks, cache, num_episodes)
    ratio, wall_ratio = two_process_ratio(tasks, cache, 2_000 if is_quick else 60_000)
    return Figures(
        data=source,
        num_games=len(chosen),
        stock_load_reset_ms=stock_load * 1e3,
        native_load_reset_ms=native_load * 1e3,
        load_reset_ratio=stock_load / native_load,
        stock_step_ms=stock_step * 1e3,
        native_step_ms=native_step * 1e3,
        step_ratio=stock_step / native_step,
        snapshot_us=snapshot * 1e6,
        restore_us=restore * 1e6,
        replay_ms=replay * 1e3,
        memory_1000_envs_mb=memory,
        num_episodes=num_episodes,
        growth_mb=growth,
        two_process_ratio=ratio,
        two_process_wall_ratio=wall_ratio,
    )


def games(folder: Path, data: Path | None) -> tuple[str, list[Task]]:
    """Where the games come from, and 30 of them spread over the list."""
    if data is None:
        generate(folder, seed=1, difficulty="normal", counts={"train": NUM_GAMES})
        return "generated (normal)", list(list_tasks(folder, "train"))
    tasks = list_tasks(data, "valid_seen")
    return "valid_seen", [tasks[index * len(tasks) // NUM_GAMES] for index in range(NUM_GAMES)]


def timed_play(
    engine: EngineName, tasks: list[Task], num_steps: int, cache: Path
) -> tuple[float, float]:
    """Mean CPU seconds of load + reset, and of a step including its admissible commands."""
    env = AlfworldEnv(engine, cache_dir=cache)
    env.reset(tasks[0])  # imports and library loading are not part of it
    repeats = 1 if engine == "reference" else 20
    loading = stepping = 0.0
    for task in tasks:
        for _ in range(repeats):
            clear_memory()
            before = time.process_time()
            observation = env.reset(task)
            loading += time.process_time() - before
        rng = random.Random(task.task_id)
        for _ in range(num_steps):
            action = rng.choice(observation.admissible)
            before = time.process_time()
            observation = env.step(action)
            stepping += time.process_time() - before
    return loading / (repeats * len(tasks)), stepping / (num_steps * len(tasks))


def timed_restore(tasks: list[Task], cache: Path) -> tuple[float, float, float]:
    """CPU seconds of a snapshot, of a restore at depth 40, and of one without its handle."""
    env = AlfworldEnv(cache_dir=cache)
    env.reset(tasks[0])
    rng = random.Random(0)
    for _ in range(DEPTH):
        env.step(rng.choice(env.observation.admissible))
    snapshot = env.snapshot()
    stored = type(snapshot)(snapshot.task_id, snapshot.actions, snapshot.state_hash)
    return (
        per_call(env.snapshot, 5_000),
        per_call(lambda: env.restore(snapshot), 5_000),
        per_call(lambda: env.restore(stored), 50),
    )


def in_new_process(
    measured: Callable[[list[Task], Path, int], float], tasks: list[Task], cache: Path, number: int
) -> float:
    """Memory is measured in a new process: elsewhere growth would hide in memory freed before."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, (tasks, cache, number))


def memory_of_1000(tasks: list[Task], cache: Path, num_envs: int) -> float:
    """MB that live environments add once the games themselves are loaded, 40 steps deep."""
    play(AlfworldEnv(cache_dir=cache), tasks, 1_000)
    before = resident_mb()
    envs = [AlfworldEnv(cache_dir=cache) for _ in range(num_envs)]
    rng = random.Random(0)
    for index, env in enumerate(envs):
        observation = env.reset(tasks[index % len(tasks)])
        for _ in range(DEPTH):
            observation = env.step(rng.choice(observation.admissible))
    return resident_mb() - before


def growth_over_episodes(tasks: list[Task], cache: Path, num_episodes: int) -> float:
    """MB that one environment gains over many episodes of ten steps."""
    env = AlfworldEnv(cache_dir=cache)
    play(env, tasks, num_episodes)  # warm-up: a tenth of the episodes
    before = resident_mb()
    play(env, tasks, num_episodes * 10)
    return resident_mb() - before


def two_process_ratio(tasks: list[Task], cache: Path, num_steps: int) -> tuple[float, float]:
    """Steps per second of two processes over those of one: by CPU time, and by wall time."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(process_rates, [(tasks, cache, 200)] * 2)  # warm-up
        alone = pool.apply(process_rates, (tasks, cache, num_steps))
        both = pool.starmap(process_rates, [(tasks, cache, num_steps)] * 2, chunksize=1)
    by_cpu, by_wall = (sum(rates[kind] for rates in both) / alone[kind] for kind in (0, 1))
    return by_cpu, by_wall


def process_rates(tasks: list[Task], cache: Path, num_steps: int) -> tuple[float, float]:
    """Steps per CPU second and per wall second in this process."""
    cpu, wall = time.process_time(), time.perf_counter()
    play(AlfworldEnv(cache_dir=cache), tasks, num_steps)
    return num_steps / (time.process_time() - cpu), num_steps / (time.perf_counter() - wall)


def play(env: AlfworldEnv, tasks: list[Task], num_steps: int) -> None:
    """Random episodes of ten steps, in turn over the games."""
    rng = random.Random(0)
    for index in range(num_steps // 10):
        observation = env.reset(tasks[index % len(tasks)])
        for _ in range(10):
            observation = env.step(rng.choice(observation.admissible))


def per_call(function: Callable[[], object], repeats: int) -> float:
    before = time.process_time()
    for _ in range(repeats):
        function()
    return (time.process_time() - before) / repeats


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def report(figures: Figures) -> None:
    print(f"{figures.num_games} games, {figures.data}; CPU time")
    for name, value in asdict(figures).items():
        if isinstance(value, float):
            sign, target = TARGETS.get(name, ("", 0.0))
            note = f"target {sign} {target:g}" if sign else ""
            print(f"{name:26} {value:12.3f}  {note}")


if __name__ == "__main__":
    sys.exit(main())
