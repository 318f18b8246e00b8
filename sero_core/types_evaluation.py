"""The plain data of an evaluation: what was played under which conditions, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EvalResult:
    """One task type (or `all`) of one panel: counts, rate and its Wilson interval at 95 %.

    `rate` is `num_won / num_episodes`; `num_tasks` counts different tasks, so it is smaller where
    tasks were played more than once (several seeds, protocol `paper`).
    """

    panel: str
    task_type: str
    num_tasks: int
    num_episodes: int
    num_won: int
    rate: float
    low: float
    high: float
    mean_score: float
    """Mean of the episodes' dense task scores from 0 to 1; the rate where there are none."""
    mean_steps: float


@dataclass(frozen=True, slots=True)
class EvalOutcome:
    """One evaluated episode. Two policies are compared in pairs of the same `task_id` and `seed`
    (and place, where a protocol plays a task twice under one seed).
    """

    task_id: str
    task_type: str
    seed: int
    is_won: bool
    score: float
    num_steps: int


@dataclass(frozen=True, slots=True)
class EvalConditions:
    """All that must be equal for two evaluations to be comparable, and whose weights were asked.

    `protocol` is followed by its settings (`paper 128`), `baseline` likewise (`reflexion last 3`);
    `data_hash` covers every task of the split with its file's contents, `prompt_hash` the text of
    probe prompts, `policy_hash` the parameters (docs/evaluation.md).
    """

    protocol: str
    baseline: str
    seeds: tuple[int, ...]
    temperature: float
    max_new_tokens: int
    max_steps: int
    env_version: str
    data_hash: str
    prompt: str
    prompt_hash: str
    engine: str
    policy_hash: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of a panel: the table, the outcome of every episode, and the conditions.

    `macro_rate` is the mean of the task types' rates; `panel_hash` covers the tasks played, in
    order, with their contents.
    """

    evaluation_id: str
    iteration: int
    panel: str
    panel_hash: str
    macro_rate: float
    conditions: EvalConditions
    results: tuple[EvalResult, ...]
    outcomes: tuple[EvalOutcome, ...]
    """By seed, then in panel order."""
