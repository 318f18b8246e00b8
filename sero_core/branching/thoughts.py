"""What an answer with the oracle's action says before it: a thought (docs/methods.md, Rendering).

A scripted oracle gives no reasoning, while the policy's format wants some. The thought is a fixed
sentence, the behavior policy's own thought in the oracle's state, or a teacher's rationale for the
action. A thought that does not make a valid answer is replaced by the fixed one, and the step says
so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from sero_core.branching.execute import ExecutedStep, Execution
from sero_core.collect import Engine, Sampling
from sero_core.oracles.endpoint import ask, episode_text
from sero_core.prompts import ACTION_OPEN, Opening, PromptBuilder, same_action
from sero_core.sections_sero import PolicyThought, TeacherThought, TemplateThought
from sero_core.seeds import derive_seed
from sero_core.types import Completion, OracleError

logger = logging.getLogger(__name__)

ThoughtSource = Literal["none", "template", "policy", "teacher", "replaced"]
"""none: the answer format has no place for one; replaced: the fixed one where another was wanted
but not usable."""

TEACHER_SYSTEM = (
    "You write down the reasoning of an agent in a text environment. You are shown the task, the "
    "recent steps, the admissible actions and the action that the agent takes next. Answer with "
    "the agent's reasoning in one to three sentences in the first person, from what it has seen so "
    "far, ending with the decision. No tags, no lists."
)
_LONGEST_TAG_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Thought:
    """An opening and where it came from."""

    source: ThoughtSource
    opening: Opening


def think(
    config: TemplateThought | PolicyThought | TeacherThought,
    executions: Sequence[Execution],
    *,
    builder: PromptBuilder,
    engine: Engine,
    sampling: Sampling,
    seed: int,
) -> list[list[Thought]]:
    """The thought of every step of every branch; policy thoughts in one batch, teacher requests
    `max_parallel` at a time. A policy thought depends on (seed, branch, depth) and its prompt."""
    template = Thought("none" if builder.style == "terse" else "template", builder.opening())
    steps = [(run, depth) for run in executions for depth in range(len(run.steps))]
    match config:
        case TemplateThought():
            found: list[Thought | None] = [template] * len(steps)
        case PolicyThought():
            found = _policy_thoughts(steps, builder, engine, sampling, seed)
        case TeacherThought():
            found = _teacher_thoughts(config, steps, builder)
    replaced = sum(thought is None for thought in found)
    if replaced:
        logger.warning("%d of %d thoughts were not usable: fixed ones", replaced, len(steps))
    answers = iter(found)
    fixed = Thought("replaced", template.opening)
    return [[next(answers) or fixed for _ in run.steps] for run in executions]


def _policy_thoughts(
    steps: Sequence[tuple[Execution, int]],
    builder: PromptBuilder,
    engine: Engine,
    sampling: Sampling,
    seed: int,
) -> list[Thought | None]:
    completions = engine.generate(
        [run.steps[depth].prompt.ids for run, depth in steps],
        temperature=sampling.temperature,
        max_new_tokens=sampling.max_new_tokens,
        seeds=[derive_seed(seed, "thought", run.root.branch_id, depth) for run, depth in steps],
    )
    return [
        _usable(Thought("policy", opening), run.steps[depth], builder)
        if (opening := opening_of(completion, builder)) is not None
        else None
        for completion, (run, depth) in zip(completions, steps, strict=True)
    ]


def opening_of(completion: Completion, builder: PromptBuilder) -> Opening | None:
    """The tokens of a sampled answer before its first action tag, exactly as they were sampled; a
    token that reaches into the tag is kept as text. None for an answer without the tag."""
    ids = completion.token_ids
    if ACTION_OPEN not in builder.decode(ids):
        return None
    low, high = 0, len(ids)  # the shortest prefix that contains the tag, by bisection
    while low < high:
        middle = (low + high) // 2
        if ACTION_OPEN in builder.decode(ids[:middle]):
            high = middle
        else:
            low = middle + 1
    before, _, _ = builder.decode(ids[:low]).partition(ACTION_OPEN)
    for kept in range(low - 1, max(low - _LONGEST_TAG_TOKENS, 0) - 1, -1):
        text = builder.decode(ids[:kept])
        if before.startswith(text):
            return Opening(before[len(text) :], ids[:kept])
    return None


def _teacher_thoughts(
    config: TeacherThought, steps: Sequence[tuple[Execution, int]], builder: PromptBuilder
) -> list[Thought | None]:
    def rationale(place: tuple[Execution, int]) -> Thought | None:
        run, depth = place
        try:
            answer = ask(config, TEACHER_SYSTEM, _question(config, run, depth))
        except OracleError as error:
            logger.warning("branch %s step %d: no rationale: %s", run.root.branch_id, depth, error)
            return None
        thought = Thought("teacher", builder.opening(" ".join(answer.split())))
        return _usable(thought, run.steps[depth], builder) if answer.strip() else None

    with ThreadPoolExecutor(config.max_parallel) as threads:
        return list(threads.map(rationale, steps))


def _question(config: TeacherThought, run: Execution, depth: int) -> str:
    """The episode up to the oracle's state, the policy's part and the oracle's, and the action."""
    before = run.root.episode.steps[: run.root.index]
    seen = [*(step.observation.text for step in before)]
    seen += [step.observation.text for step in run.steps[: depth + 1]]
    actions = [*(step.action for step in before), *(step.action for step in run.steps[:depth])]
    past = list(zip(actions, seen[1:], strict=True))
    shown = past[len(past) - min(config.history_steps, len(past)) :]
    step = run.steps[depth]
    episode = episode_text(seen[0], shown, step.observation.admissible)
    return f"{episode}\n\nThe agent's next action: {step.action}\n\nIts reasoning:"


def _usable(thought: Thought, step: ExecutedStep, builder: PromptBuilder) -> Thought | None:
    """The thought if the answer with the oracle's action after it is valid and means that action
    (docs/correctness.md S7)."""
    rendered = builder.render(step.action, thought.opening)
    parsed = builder.parse(builder.decode(rendered.token_ids[:-1]))
    return thought if parsed.is_valid and same_action(parsed.action, step.action) else None
