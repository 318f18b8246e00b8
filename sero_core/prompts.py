"""How a state becomes a prompt, and an answer an action.

`standard` follows the literature's protocol: role, task, the last H (observation, action) pairs,
current observation, admissible actions, then a think/action instruction. `terse` is for models of a
few million parameters: short lines, one per step, and an answer that is only the action tag.
Both go through the tokenizer's own chat template, and the ids built here are the ids that the
engine reads and the trainer trains on: text is never re-tokenised on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from sero_core import prompts_webshop as webshop
from sero_core.sections import PromptConfig
from sero_core.types import Observation, SeroError

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

EnvName = Literal["alfworld", "webshop"]
ACTION_OPEN, ACTION_CLOSE = "<action>", "</action>"
THINK_TEMPLATE = "I read the observation and take the next useful action."
FALLBACK_CHARS: dict[EnvName, int] = {"alfworld": 30, "webshop": 20}
"""An answer without tags: this many of its last characters are the action."""
_CJK = re.compile(r"[\u4e00-\u9fff]")
_HIDDEN = ("look", "inventory", "help", "examine ")


@dataclass(frozen=True, slots=True)
class PastStep:
    """One (observation, action) pair before the current observation."""

    observation: str
    action: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """Chat-formatted prompt text and its token ids."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """What an answer says before its action tag: tokens that were sampled, then more text."""

    text: str
    sampled_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RenderedAction:
    """An action in the policy's answer format.

    `text` is what follows the opening's sampled tokens. `scored[i]` is true where token i overlaps
    the action's own text (tags, thought and the end-of-turn token are not scored).
    """

    text: str
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    scored: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """`is_valid`: the answer has the required tags. An invalid answer still yields an action."""

    action: str
    is_valid: bool


class PromptTooLong(SeroError):
    """A prompt exceeds `prompt.max_prompt_tokens` even without history."""


class PromptBuilder:
    """Builds prompts and renders actions for one tokenizer. Pure: the same input, the same ids."""

    def __init__(
        self, config: PromptConfig, tokenizer: PreTrainedTokenizerBase, env: EnvName = "alfworld"
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._env: EnvName = env

    @property
    def style(self) -> Literal["terse", "standard"]:
        return self._config.name

    @property
    def env(self) -> EnvName:
        return self._env

    def shown(self, task: str, observation: str) -> str:
        """An observation as the standard prompt's history shows it."""
        return shown(self._env, task, observation)

    def limited_to(self, max_prompt_tokens: int) -> PromptBuilder:
        """The same builder with another limit."""
        config = self._config.model_copy(update={"max_prompt_tokens": max_prompt_tokens})
        return PromptBuilder(config, self._tokenizer, self._env)

    def chat(self, content: str) -> Prompt:
        """One user message in the tokenizer's chat template, of any length."""
        text = str(
            self._tokenizer.apply_chat_template(
                [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
            )
        )
        return Prompt(text, self._ids(text))

    def build(
        self, task: str, past: Sequence[PastStep], observation: Observation, preface: str = ""
    ) -> Prompt:
        """The prompt of step len(past). Oldest history is dropped until it fits; a WebShop page
        that does not fit even so is cut.

        `preface` stands before everything else in the user message.
        Errors: `PromptTooLong` with got/allowed when even the history-free prompt does not fit.
        """
        num_tokens = 0
        for kept, page in self._attempts(past, observation):
            body = body_text(self.style, task, past, kept, page, self._env)
            prompt = self.chat(preface + body)
            num_tokens = len(prompt.ids)
            if num_tokens <= self._config.max_prompt_tokens:
                return prompt
        raise PromptTooLong(
            f"prompt of step {len(past)} has {num_tokens} tokens without history, "
            f"prompt.max_prompt_tokens is {self._config.max_prompt_tokens}"
        )

    def _attempts(
        self, past: Sequence[PastStep], observation: Observation
    ) -> Iterator[tuple[int, Observation]]:
        """(kept history, page): less and less history, then (WebShop) less and less of the page."""
        for kept in range(min(self._config.history_length, len(past)), -1, -1):
            yield kept, observation
        if self._env == "webshop":
            for shorter in webshop.shortened(observation):
                yield 0, shorter

    def opening(self, thought: str = THINK_TEMPLATE) -> Opening:
        """A thought as the answer format wants it; the terse format has none."""
        return Opening(f"<think>{thought}</think>\n" if self._config.name == "standard" else "")

    def render(self, action: str, opening: Opening | None = None) -> RenderedAction:
        """The oracle's action as the policy would have to answer it, after a fixed neutral thought
        or another opening. Sampled tokens stay as they are; only text is tokenised.
        """
        opening = self.opening() if opening is None else opening
        before = opening.text + ACTION_OPEN
        text = f"{before}{action}{ACTION_CLOSE}"
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        start, end = len(before), len(before) + len(action)
        ids = cast("list[int]", encoded["input_ids"])
        offsets = cast("list[tuple[int, int]]", encoded["offset_mapping"])
        ids = [*opening.sampled_ids, *ids, cast(int, self._tokenizer.eos_token_id)]
        scored = [low < end and high > start for low, high in offsets]
        return RenderedAction(
            text=text,
            token_ids=tuple(ids),
            tokens=tuple(self.decode([i]) for i in ids),
            scored=(*(False for _ in opening.sampled_ids), *scored, False),
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens included."""
        return str(self._tokenizer.decode(list(ids)))

    def parse(self, response: str) -> ParsedAction:
        """Lower-cased text between the first tags. Without tags: the last characters, invalid.

        Valid answers have the action tags, and the think tags too in the standard format, and no
        CJK character. Whether the action is admissible plays no part.
        """
        lowered = response.lower()
        start = lowered.find(ACTION_OPEN)
        end = lowered.find(ACTION_CLOSE, start + 1)
        if start < 0 or end < 0:
            return ParsedAction(lowered[-FALLBACK_CHARS[self._env] :].strip(), False)
        action = lowered[start + len(ACTION_OPEN) : end].strip()
        is_valid = bool(action) and _CJK.search(response) is None
        if self._config.name == "standard":
            is_valid = is_valid and "<think>" in lowered and "</think>" in lowered
        return ParsedAction(action, is_valid)

    def _ids(self, text: str) -> tuple[int, ...]:
        encoded = self._tokenizer(text, add_special_tokens=False)
        return tuple(cast("list[int]", encoded["input_ids"]))


def same_action(left: str, right: str) -> bool:
    """Whether two actions are the same to `parse`, which lower-cases."""
    return left.strip().lower() == right.strip().lower()


def body_text(
    name: Literal["terse", "standard"],
    task: str,
    past: Sequence[PastStep],
    kept: int,
    observation: Observation,
    env: EnvName = "alfworld",
) -> str:
    """The user message, with the last `kept` of the past steps."""
    history = list(past[len(past) - kept :])
    if env == "webshop" and name == "terse":
        return webshop.terse(task, history, observation)
    if env == "webshop":
        return webshop.standard(task, history, len(past), observation)
    if name == "terse":
        return _terse(task, history, len(past), observation)
    return _standard(task, history, len(past), observation)


def shown(env: EnvName, task: str, observation: str) -> str:
    """An observation as the standard prompt's history shows it: of a WebShop page what follows the
    instruction.
    """
    return webshop.page_text(task, observation) if env == "webshop" else observation


def task_text(first_observation: str) -> str:
    """What the first observation asks for: WebShop's instruction, or ALFWorld's sentence after
    "Your task is to: "; the whole text without either.
    """
    if (wanted := webshop.instruction(first_observation)) is not None:
        return wanted
    _, found, rest = first_observation.partition("Your task is to: ")
    return rest.strip() if found else first_observation.strip()


def _standard(task: str, history: list[PastStep], num_past: int, observation: Observation) -> str:
    shown = [action for action in observation.admissible if action != "help"]
    actions = ",\n ".join(f"'{action}'" for action in shown)
    lines = ["You are an expert agent operating in the ALFRED Embodied Environment."]
    if num_past:
        lines[0] += f" Your task is to: {task}"
        first = num_past - len(history) + 1
        lines.append(
            f"Prior to this step, you have already taken {num_past} step(s). Below are the most "
            f"recent {len(history)} observations and the corresponding actions you took:"
        )
        lines += [
            f"[Observation {i}: '{past.observation}', Action {i}: '{past.action}']"
            for i, past in enumerate(history, first)
        ]
        lines.append(
            f"You are now at step {num_past + 1} and your current observation is: "
            f"{observation.text}"
        )
    else:
        lines.append(f"Your current observation is: {observation.text}")
    lines.append(f"Your admissible actions of the current situation are: [{actions}].")
    lines.append(
        "Now it's your turn to take an action. First reason step by step about the current "
        "situation inside <think> </think> tags. Then choose one admissible action for the "
        "current step and present it inside <action> </action> tags."
    )
    return "\n".join(lines)


def _terse(task: str, history: list[PastStep], num_past: int, observation: Observation) -> str:
    """One line per past step ("action > what it showed"); the current observation is the last
    one.
    """
    lines = [f"task: {task.rstrip('.')}"]
    if history:
        texts = [past.observation for past in history[1:]] + [observation.text]
        lines += [
            f"{past.action} > {terse_observation(text)}"
            for past, text in zip(history, texts, strict=True)
        ]
    elif num_past:
        lines.append(f"now > {terse_observation(observation.text)}")
    shown = [a for a in observation.admissible if not a.startswith(_HIDDEN)]
    lines += ["can:", *shown]
    return "\n".join(lines)


def terse_observation(text: str) -> str:
    """What an observation adds to the action before it, in a few words.

    "You arrive at shelf 1. On the shelf 1, you see a mug 1, and a cup 2." -> "mug 1, cup 2"
    """
    text = text.strip()
    if text.startswith("Nothing happens"):
        return "nothing happens"
    if text.endswith("is closed."):
        return "closed"
    _, found, rest = text.partition("you see ")
    if found:
        items = rest.rstrip(".").replace(", and ", ", ").split(", ")
        return ", ".join(re.sub(r"^(an?|some) ", "", item) for item in items)
    return "ok"
