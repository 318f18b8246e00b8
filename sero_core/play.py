"""`sero play`: act by hand in an environment, ask the oracle, go back to any step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sero_core.config import RunConfig
from sero_core.envs import load_tasks, make_env
from sero_core.oracles import default_oracle
from sero_core.types import Observation, OracleError, Prefix, PrefixStep, SeroError, Snapshot

HELP = (
    "Type an action, or: !oracle (what the oracle would do), !restore N (back to step N), "
    "!actions (admissible actions), !quit"
)


def play_game(
    config: RunConfig, split: str, index: int, lines: Iterator[str], say: Callable[[str], None]
) -> None:
    """Play one game until `!quit` or the end of input. A won game can still be restored.

    Errors: `SeroError` for a game number outside the split.
    """
    tasks = load_tasks(config.env, split)
    if index >= len(tasks):
        raise SeroError(f"game {index} of {split}: there are {len(tasks)} (0 to {len(tasks) - 1})")
    task = tasks[index]
    env = make_env(config.env)
    part = default_oracle(config.env.name) if config.sero is None else config.sero.oracle
    oracle = part()
    observation = env.reset(task)
    history: list[tuple[Snapshot, PrefixStep]] = []
    say(f"{task.task_id}\n{HELP}\n\n{observation.text}")
    for line in lines:
        command = line.strip()
        if command == "!quit":
            break
        if command == "!actions":
            say("\n".join(observation.admissible))
        elif command == "!oracle":
            prefix = Prefix(task, tuple(step for _, step in history), observation, env)
            try:
                oracle.start(prefix)
                say(f"oracle: {oracle.act(observation)}")
            except OracleError as error:
                say(f"oracle gives up: {error.reason}")
        elif command.startswith("!restore"):
            restored = _parse_step(command, len(history), say)
            if restored is not None:
                snapshot = history[restored][0] if restored < len(history) else env.snapshot()
                observation = env.restore(snapshot)
                del history[restored:]
                say(f"restored step {restored}, hash {snapshot.state_hash}\n{observation.text}")
        elif command.startswith("!"):
            say(f"unknown command {command!r}. {HELP}")
        elif command:
            history.append((env.snapshot(), PrefixStep(observation, command)))
            observation = env.step(command)
            say(_show(len(history), observation))
    env.close()


def _show(step: int, observation: Observation) -> str:
    end = "  [won]" if observation.is_won else ""
    if observation.is_terminated and observation.score is not None:
        end += f"  [score {observation.score:.3f}]"
    return f"[{step}]{end} {observation.text}"


def _parse_step(command: str, count: int, say: Callable[[str], None]) -> int | None:
    text = command.removeprefix("!restore").strip()
    if text.isdigit() and int(text) <= count:
        return int(text)
    say(f"!restore needs a step from 0 to {count}, got {text!r}")
    return None
