"""WebShop's prompts: the shared protocol of verl-agent in our own words, and a terse form.

Read from the observation text alone, in either mode: `text` joins a page's parts with " [SEP] ",
`text_rich` puts one on each line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sero_core.types import Observation

if TYPE_CHECKING:
    from sero_core.prompts import PastStep

MAX_CHARS_WITH_HISTORY = 13_000
"""Above this the prompt has no history (verl-agent's rule)."""
SEPARATOR = " [SEP] "
CUT = " ..."
_SHARES = (0.75, 0.5, 0.25, 0.1, 0.03)
_IGNORED = ("Rating: N.A.",)
_BUTTONS = ("back to search", "< prev", "next >", "description", "features", "reviews")


def instruction(text: str) -> str | None:
    """The instruction in an observation; None where the text is no WebShop page."""
    for separator in (SEPARATOR, "\n"):
        parts = text.split(separator)
        if parts[0] == "WebShop":
            parts = parts[1:]
        if len(parts) > 1 and parts[0].strip() == "Instruction:":
            return parts[1]
    return None


def page_parts(task: str, text: str) -> tuple[str, list[str]]:
    """(separator, parts after the instruction); the whole text where it is not found."""
    for separator in (SEPARATOR, "\n"):
        parts = text.split(separator)
        if task in parts:
            return separator, parts[parts.index(task) + 1 :]
    return "", [text]


def page_text(task: str, text: str) -> str:
    """The page after the instruction. In `text` mode its parts are quoted, as in the protocol."""
    separator, parts = page_parts(task, text)
    if separator == SEPARATOR:
        return SEPARATOR.join(f"'{part}'" for part in parts)
    return "\n".join(parts).strip("\n")


def standard(
    task: str, history: Sequence[PastStep], num_past: int, observation: Observation
) -> str:
    """The user message; without history where it would be longer than 13,000 characters."""
    text = _standard(task, history, num_past, observation)
    if history and len(text) > MAX_CHARS_WITH_HISTORY:
        return _standard(task, (), num_past, observation)
    return text


def terse(task: str, history: Sequence[PastStep], observation: Observation) -> str:
    """Instruction, one line per past action, then the page: what can be clicked in brackets, a
    product to a line, buttons that lead to other pages on one line.
    """
    separator, parts = page_parts(task, observation.text)
    lines = [f"task: {task.lower()}", *(f"> {past.action}" for past in history)]
    if separator == SEPARATOR:
        parts = _terse_parts(parts, observation.admissible)
    return "\n".join([*lines, *parts])


def shortened(observation: Observation) -> Iterator[Observation]:
    """Ever shorter versions of a page that is too long for any prompt: first the text is cut, then
    the list of actions, both at their end and marked as cut.
    """
    text, actions = observation.text, observation.admissible
    for share in _SHARES:
        yield replace(observation, text=text[: int(len(text) * share)] + CUT)
    text = text[: int(len(text) * _SHARES[-1])] + CUT
    for share in _SHARES:
        kept = actions[: int(len(actions) * share)]
        yield replace(observation, text=text, admissible=(*kept, CUT.strip()))


def _standard(
    task: str, history: Sequence[PastStep], num_past: int, observation: Observation
) -> str:
    lines = [
        "You are an expert autonomous agent operating in the WebShop e-commerce environment.",
        f"Your task is to: {task}.",
    ]
    shown = page_text(task, observation.text)
    if history:
        first = num_past - len(history) + 1
        lines.append(
            f"Prior to this step, you have already taken {num_past} step(s). Below are the most "
            f"recent {len(history)} observations and the corresponding actions you took:"
        )
        lines += [
            f"[Observation {i}: '{page_text(task, past.observation)}', Action {i}: '{past.action}']"
            for i, past in enumerate(history, first)
        ]
        lines.append(f"You are now at step {num_past + 1} and your current observation is: {shown}")
    else:
        lines.append(f"Your current observation is: {shown}")
    actions = ",\n".join(f"'{action}'" for action in observation.admissible)
    lines.append(f"Your admissible actions of the current situation are: [\n{actions}\n].")
    lines.append(
        "Now it's your turn to take one action for the current step. First reason step by step "
        "about the current situation inside <think> </think> tags. Then choose one admissible "
        "action for the current step and present it inside <action> </action> tags."
    )
    return "\n".join(lines)


def _terse_parts(parts: Sequence[str], admissible: Sequence[str]) -> list[str]:
    """Lines of a page. A product's title and price follow its link on the same line."""
    buttons: list[str] = []
    lines: list[str] = []
    links = {action[len("click[") : -1] for action in admissible if action.startswith("click[")}
    is_results = any(part.startswith("Page ") for part in parts[:2])
    for part in parts:
        text = part.lower()
        if part in _IGNORED:
            continue
        if text in _BUTTONS and text in links:
            buttons.append(f"[{text}]")
        elif text in links:
            lines.append(f"[{text}]")
        elif is_results and lines and lines[-1].startswith("["):
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return [" ".join(buttons), *lines] if buttons else lines
