"""Success of every oracle by depth and task type, from states of random walks or of a policy.

Run: python benchmarks/oracles.py [--policy demo] [--data ROOT] [--games 60] [--json FILE]
Without --data (or $SERO_DATA) it plays generated games of difficulty `large`. With --policy the
prefixes are a policy's own episodes (sampled at temperature 1 with the prompt of --config);
without, random walks. An episode that ended before a depth has no state there.

A state counts as reachable when the planner has a plan from it. `won`: share of reachable states
from which the oracle won within the step limit; `extra`: mean number of actions beyond the shortest
plan; `dead`: states without a plan; `told`: how many of them the oracle called a dead end; `ms`,
`max ms`: CPU time of one decision, without Python's collection of cyclic garbage (its pauses depend
on the whole heap).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from sero_core.collect import Collector, Sampling
from sero_core.config import load_config
from sero_core.engines.transformers import TransformersRuntime
from sero_core.envs.alfworld.env import AlfworldEnv
from sero_core.envs.alfworld.generator import generate
from sero_core.envs.alfworld.plan import plan
from sero_core.envs.alfworld.plan_state import State
from sero_core.envs.alfworld.tasks import list_tasks
from sero_core.envs.vector import EnvPool, LocalEnvs
from sero_core.oracles import OracleConfig
from sero_core.oracles.goal import goal_from_file
from sero_core.policy import load_policy
from sero_core.prompts import PromptBuilder
from sero_core.types import DeadEnd, Episode, Observation, OracleError, Prefix, PrefixStep, Task

DEPTHS = (0, 3, 10, 25, 40)
Reach = Callable[[AlfworldEnv, Task, int], Prefix | None]
"""Brings the environment to a state of the task, so many steps deep; None if there is none."""


@dataclass
class Tally:
    """Outcomes of one oracle at one depth for one task type."""

    num_states: int = 0
    num_dead: int = 0
    num_dead_told: int = 0
    num_won: int = 0
    num_steps: int = 0
    num_shortest: int = 0
    slowest_ms: float = 0.0
    total_ms: float = 0.0
    num_acts: int = 0
    failures: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("SERO_DATA", ""))
    parser.add_argument("--split", default="valid_seen")
    parser.add_argument("--games", type=int, default=60)
    parser.add_argument("--difficulty", default="large", choices=("small", "normal", "large"))
    parser.add_argument("--oracles", nargs="+", default=["planner", "explorer"])
    parser.add_argument("--depths", nargs="+", type=int, default=DEPTHS)
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", default="", help="policy folder, or `demo`")
    parser.add_argument("--config", type=Path, default=Path("configs/sero_demo.toml"))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    gc.disable()
    # benchmarks/alfworld.py must not hide the package alfworld, which handcoded needs
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(args.data) if args.data else Path(folder)
        if not args.data:
            generate(root, seed=7, difficulty=args.difficulty, counts={args.split: args.games})
        tasks = list(list_tasks(root, args.split))
        random.Random(args.seed).shuffle(tasks)
        tasks = tasks[: args.games]
        reach: Reach = RandomWalks(args.seed)
        if args.policy:
            reach = policy_walks(args.policy, args.config, tasks, max(args.depths), args.seed)
        tallies = measure(tasks, args, reach)
    report(tallies, args.json)


def measure(
    tasks: list[Task], args: argparse.Namespace, reach: Reach
) -> dict[tuple[str, str, int], Tally]:
    env = AlfworldEnv()
    tallies: dict[tuple[str, str, int], Tally] = defaultdict(Tally)
    for task in tasks:
        for depth in args.depths:
            for name in args.oracles:
                prefix = reach(env, task, depth)
                if prefix is not None:
                    play(name, prefix, tallies[name, task.task_type, depth], args.limit)
    return tallies


@dataclass(frozen=True)
class RandomWalks:
    """Random steps, nonsense included; None when they happen to win."""

    seed: int

    def __call__(self, env: AlfworldEnv, task: Task, depth: int) -> Prefix | None:
        rng = random.Random(f"{self.seed}|{task.task_id}|{depth}")
        observation = env.reset(task)
        steps: list[PrefixStep] = []
        for _ in range(depth):
            action = pick(rng, observation.admissible)
            steps.append(PrefixStep(observation, action))
            observation = env.step(action)
            if observation.is_won:
                return None
        return Prefix(task, tuple(steps), observation, env)


@dataclass(frozen=True)
class PolicyWalks:
    """One episode of the policy per task; its state at a depth is restored, which checks it."""

    episodes: dict[str, Episode]

    def __call__(self, env: AlfworldEnv, task: Task, depth: int) -> Prefix | None:
        episode = self.episodes[task.task_id]
        if depth >= len(episode.steps):
            return None
        env.reset(task)
        observation = env.restore(episode.steps[depth].snapshot)
        steps = tuple(PrefixStep(s.observation, s.action) for s in episode.steps[:depth])
        return Prefix(task, steps, observation, env)


def policy_walks(
    path: str, config_path: Path, tasks: list[Task], depth: int, seed: int
) -> PolicyWalks:
    """Roll the policy out, at most `depth` + 1 steps per task, and say how it did."""
    config = load_config(config_path)
    policy = load_policy(path, config.policy.dtype, config.policy.num_threads)
    collector = Collector(
        TransformersRuntime(config.engine, policy),
        LocalEnvs(EnvPool(AlfworldEnv)),
        PromptBuilder(config.prompt, policy.tokenizer),
        config.rollout.model_copy(update={"max_steps": depth + 1}),
    )
    groups = collector.collect(
        tasks,
        group_size=1,
        sampling=Sampling(1.0, config.sampling.max_new_tokens),
        seed=seed,
        prefix="walk-",
    )
    episodes = {group.task.task_id: group.episodes[0] for group in groups}
    steps = [step for episode in episodes.values() for step in episode.steps]
    won = sum(episode.is_won for episode in episodes.values())
    admissible = sum(step.is_admissible for step in steps) / len(steps)
    print(f"policy {path}: {won} of {len(episodes)} episodes won, {admissible:.0%} of "
          f"{len(steps)} actions admissible")  # fmt: skip
    return PolicyWalks(episodes)


def pick(rng: random.Random, admissible: tuple[str, ...]) -> str:
    """A verb evenly, then one of its actions: objects are taken, moved and changed all the time,
    which evenly drawn actions (most are `go to`) hardly ever do. One step in ten is nonsense."""
    if rng.random() < 0.1:
        return rng.choice(["fly to the moon", "take soap from sink", "go to cabinet 99", ""])
    verb = rng.choice(sorted({action.split()[0] for action in admissible}))
    return rng.choice([action for action in admissible if action.split()[0] == verb])


def play(name: str, prefix: Prefix, tally: Tally, limit: int) -> None:
    adapter: TypeAdapter[OracleConfig] = TypeAdapter(OracleConfig)
    oracle = adapter.validate_python({"name": name})()
    env, observation = prefix.env, prefix.observation
    tally.num_states += 1
    goal = goal_from_file(prefix.task.path, prefix.task.content_hash)
    shortest: int | None
    try:
        shortest = len(plan(State.from_facts(env.facts()), goal))
    except DeadEnd:
        shortest = None
        tally.num_dead += 1
    where = f"{prefix.task.task_id} depth {len(prefix.steps)}"
    taken = 0
    try:
        oracle.start(prefix)
        while not observation.is_won and taken < limit:
            began = time.process_time()
            action = oracle.act(observation)
            spent = 1000 * (time.process_time() - began)
            tally.slowest_ms, tally.total_ms = max(tally.slowest_ms, spent), tally.total_ms + spent
            tally.num_acts += 1
            observation = step(observation, action, env)
            taken += 1
    except DeadEnd as error:
        tally.num_dead_told += 1
        if shortest is not None:
            tally.failures.append(f"{where}: false dead end: {error.reason}")
        return
    except OracleError as error:
        if shortest is not None:
            tally.failures.append(f"{where}: {error.reason}")
        return
    if observation.is_won and shortest is None:
        tally.failures.append(f"{where}: won a state without a plan")
    elif observation.is_won:
        tally.num_won += 1
        tally.num_steps += taken
        tally.num_shortest += shortest or 0
    elif shortest is not None:
        tally.failures.append(f"{where}: not won in {limit} steps")


def step(observation: Observation, action: str, env: object) -> Observation:
    assert action in observation.admissible, action
    assert isinstance(env, AlfworldEnv)
    return env.step(action)


def report(tallies: dict[tuple[str, str, int], Tally], path: Path | None) -> None:
    rows = dict(tallies)
    for (name, _, depth), tally in tallies.items():
        total = rows.setdefault((name, "all", depth), Tally())
        for key, value in asdict(tally).items():
            old = getattr(total, key)
            setattr(total, key, max(old, value) if key == "slowest_ms" else old + value)
    print(f"{'oracle':9} {'task type':31} {'depth':>5} {'reachable':>9} {'won':>7} {'extra':>6} "
          f"{'dead':>5} {'told':>5} {'ms':>6} {'max ms':>7}")  # fmt: skip
    for (name, task_type, depth), tally in sorted(rows.items(), key=lambda item: item[0]):
        reachable = tally.num_states - tally.num_dead
        won = 100 * tally.num_won / max(reachable, 1)
        mean_ms = tally.total_ms / max(tally.num_acts, 1)
        extra = (tally.num_steps - tally.num_shortest) / max(tally.num_won, 1)
        print(f"{name:9} {task_type:31} {depth:5} {reachable:9} {won:6.1f}% {extra:6.1f} "
              f"{tally.num_dead:5} {tally.num_dead_told:5} "
              f"{mean_ms:6.2f} {tally.slowest_ms:7.2f}")  # fmt: skip
    failures = [line for tally in tallies.values() for line in tally.failures]
    print(f"{len(failures)} failures", *failures[:20], sep="\n")
    if path is not None:
        content = {"|".join(map(str, key)): asdict(tally) for key, tally in rows.items()}
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
