"""A language model behind any OpenAI-compatible endpoint as oracle. Training only."""

from __future__ import annotations

from typing import ClassVar, Literal

from sero_core.oracles.endpoint import ChatEndpoint, ask, episode_text
from sero_core.types import Observation, Oracle, OracleError, Prefix

SYSTEM = (
    "You finish a task in a text environment that someone else began. You are shown the task, the "
    "recent steps and the admissible actions. Answer with one admissible action, copied exactly, "
    "and nothing else."
)


class LLMOracle(ChatEndpoint):
    """A model behind an OpenAI-compatible endpoint; sees only the episode's texts."""

    envs: ClassVar[tuple[str, ...]] = ("alfworld",)

    name: Literal["llm"] = "llm"

    def __call__(self) -> Oracle:
        return LLM(self)


class LLM:
    """Keeps the episode as text and asks for one action at a time."""

    def __init__(self, config: LLMOracle) -> None:
        self._config = config
        self._intro = ""
        self._steps: list[tuple[str, str]] = []
        self._last_action: str | None = None

    def start(self, prefix: Prefix) -> None:
        after = [*(step.observation.text for step in prefix.steps), prefix.observation.text]
        self._intro = after[0]
        actions = [step.action for step in prefix.steps]
        self._steps = list(zip(actions, after[1:], strict=True))
        self._last_action = None

    def act(self, observation: Observation) -> str:
        if not self._intro:
            raise OracleError("the language model was not started")
        if self._last_action is not None:
            self._steps.append((self._last_action, observation.text))
        shown = self._steps[len(self._steps) - min(self._config.history_steps, len(self._steps)) :]
        episode = episode_text(self._intro, shown, observation.admissible)
        answer = ask(self._config, SYSTEM, f"{episode}\n\nNext action:")
        self._last_action = _parse(answer, observation.admissible)
        return self._last_action


def _parse(answer: str, admissible: tuple[str, ...]) -> str:
    """The admissible action that the answer's last line names, else the last one it mentions."""
    lines = [line.strip(" \t>`'\".") for line in answer.strip().splitlines() if line.strip()]
    if lines and lines[-1] in admissible:
        return lines[-1]
    found = [(answer.rfind(action), len(action), action) for action in admissible]
    best = max(found, default=(-1, 0, ""))
    if best[0] < 0:
        raise OracleError(f"the model names no admissible action: {answer.strip()[:80]!r}")
    return best[2]
