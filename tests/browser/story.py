"""Records that read like a training run: household tasks, a policy that improves, oracle branches.

The weights follow from the logprobs exactly (lennorm), so the page's audit must agree with them.
Iteration 3 carries HTML and Markdown in its texts (`XSS`), iteration 4 has tampered weights.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np

from sero_core.records import (
    BranchPayload,
    BranchStepPayload,
    CheckpointPayload,
    EpisodePayload,
    EvalResultPayload,
    EvaluationPayload,
    IterationPayload,
    OutcomePayload,
    StepPayload,
    TaskPayload,
)

XSS = (
    '<img src=x onerror="window.__xss=1"> [x](javascript:alert(1)) <script>window.__xss=2</script>'
)
XSS_ITERATION, TAMPERED_ITERATION = 3, 4
GOALS = (
    ("pick_heat_then_place_in_recep", "put a hot apple in fridge", "apple 1", "heat"),
    ("pick_clean_then_place_in_recep", "put a clean mug in cabinet", "mug 2", "clean"),
    ("pick_two_obj_and_place", "put two cd in safe", "cd 3", "take"),
)
PLACES = ("countertop 1", "drawer 2", "microwave 1", "fridge 1", "cabinet 3", "sinkbasin 1")
ROOT = 3
NUM_TASKS = 40


def iteration(number: int, total: int, seed: int, has_branches: bool) -> IterationPayload:
    """Iteration `number` of `total`; iteration 0 is the evaluation before training."""
    rng = np.random.default_rng([seed, number])
    skill = 0.15 + 0.6 * number / total + (0.1 if has_branches else 0.0)
    episodes = [
        _episode(rng, number, group, index, skill, number == XSS_ITERATION and index == 0)
        for group in range(2 if number else 0)
        for index in range(3)
    ]
    branches = [_branch(rng, number, item, skill) for item in episodes[::2] if has_branches]
    every = number % 3 == 0
    metrics = _metrics(rng, number, skill, episodes, branches)
    evaluations = [
        _evaluation(rng, number, panel, skill - loss)
        for panel, loss in (("valid_seen", 0.0), ("valid_unseen", 0.08))
        if every
    ]
    return IterationPayload(
        iteration=number,
        written_at=datetime.now(UTC),
        metrics=metrics | {f"eval/{item.panel}": item.results[0].rate for item in evaluations},
        episodes=episodes,
        branches=branches,
        evaluations=evaluations,
        checkpoint=CheckpointPayload(
            iteration=number,
            path=f"checkpoints/iteration-{number:05d}",
            weights_hash=f"{number:064x}",
            num_bytes=3_500_000,
        )
        if every
        else None,
    )


def _task(group: int) -> TaskPayload:
    kind, goal, _, _ = GOALS[group % len(GOALS)]
    return TaskPayload(
        task_id=f"train/{kind}-{group}/{goal.replace(' ', '_')}",
        env="alfworld",
        split="train",
        task_type=kind,
        content_hash=f"{group:064x}",
    )


def _observation(rng: np.random.Generator, group: int, index: int) -> str:
    if index == 0:
        goal = GOALS[group % len(GOALS)][1]
        return (
            "You are in the middle of a room. Looking quickly around you, you see a cabinet 3, a "
            f"countertop 1, a drawer 2, a fridge 1 and a microwave 1.\n\nYour task is to: {goal}."
        )
    place = PLACES[int(rng.integers(len(PLACES)))]
    return f"You arrive at {place}. On the {place}, you see a bread 1, a knife 2 and a plate 1."


def _plan(group: int) -> list[str]:
    _, _, thing, verb = GOALS[group % len(GOALS)]
    tool = {"heat": "microwave 1", "clean": "sinkbasin 1"}.get(verb, "drawer 2")
    return [
        "go to countertop 1",
        f"take {thing} from countertop 1",
        f"go to {tool}",
        f"open {tool}",
        f"{verb} {thing} with {tool}",
        "go to fridge 1",
        "open fridge 1",
        f"move {thing} to fridge 1",
    ]


def _admissible(action: str, probe: str) -> list[str]:
    moves = [f"go to {place}" for place in PLACES]
    return list(dict.fromkeys([*moves, action, probe, "inventory", "look", "examine plate 1"]))


def _episode(
    rng: np.random.Generator, number: int, group: int, index: int, skill: float, is_xss: bool
) -> EpisodePayload:
    is_won = bool(rng.random() < skill)
    plan = _plan(group)
    steps: list[StepPayload] = []
    for t in range(8 if is_won else 12):
        follows = is_won or t < ROOT
        action = plan[t] if follows else f"go to {PLACES[int(rng.integers(len(PLACES)))]}"
        is_odd = not follows and bool(rng.random() < 0.15)
        text = XSS if is_xss and t else _observation(rng, group, t)
        answer = f"<action>{action}</action>"
        num_tokens = len(answer.split()) + 2
        steps.append(
            StepPayload(
                index=t,
                observation=text,
                admissible=_admissible(action, "look"),
                response=XSS if is_xss else answer,
                action="use lamp 9" if is_odd else XSS if is_xss and t == ROOT else action,
                token_ids=list(range(num_tokens)),
                logprobs=[-float(x) for x in rng.exponential(0.4, num_tokens)],
                is_valid=not is_odd,
                is_admissible=not is_odd,
                reward=1.0 if is_won and t == 7 else 0.0,
                state_hash=f"{number:04x}{group:02x}{index:02x}{t:056x}",
            )
        )
    return EpisodePayload(
        episode_id=f"i{number}g{group}e{index}",
        group_index=group,
        index=index,
        task=_task(group),
        is_won=is_won,
        is_truncated=not is_won,
        reward=1.0 if is_won else 0.0,
        final_observation="You won." if is_won else "Nothing happens.",
        steps=steps,
    )


def _branch(
    rng: np.random.Generator, number: int, episode: EpisodePayload, skill: float
) -> BranchPayload:
    group = episode.group_index
    weight, steps = 1.0, []
    is_xss = number == XSS_ITERATION and episode.index == 0
    for k, action in enumerate(_plan(group)[ROOT:]):
        words = action.split(" ")
        tokens = ["<action>", words[0], *(f" {word}" for word in words[1:]), "</action>"]
        scored = [0 < i < len(tokens) - 1 for i in range(len(tokens))]
        scale = 1.1 * (1 - skill) * (3.0 if k == 2 else 0.5)
        logprobs = [-float(x) for x in rng.exponential(scale + 0.02, len(tokens))]
        span = [value for value, is_in in zip(logprobs, scored, strict=True) if is_in]
        own = episode.steps[ROOT + k].action if ROOT + k < len(episode.steps) else None
        probe = action if rng.random() < skill else "go to cabinet 3"
        steps.append(
            BranchStepPayload(
                depth=k,
                observation=episode.steps[ROOT].observation
                if k == 0
                else XSS
                if is_xss
                else _observation(rng, group, k + 1),
                admissible=_admissible(action, probe),
                prompt="prompt",
                action=action,
                token_ids=list(range(len(tokens))),
                tokens=tokens,
                logprobs=logprobs,
                scored=scored,
                action_logprob_mean=math.fsum(span) / len(span),
                action_logprob_sum=math.fsum(span),
                compatibility=math.exp(math.fsum(span) / len(span)),
                weight=weight * (0.5 if number == TAMPERED_ITERATION and k == 3 else 1.0),
                policy_action=own,
                probe_action=probe,
                reward=1.0 if k == 4 else 0.0,
                state_hash=f"{number:04x}{k:060x}",
            )
        )
        weight *= steps[-1].compatibility
    root_hash = episode.steps[ROOT].state_hash
    return BranchPayload(
        branch_id=f"{episode.episode_id}t{ROOT}",
        episode_id=episode.episode_id,
        task=episode.task,
        root_index=ROOT,
        root_rule="disagree",
        oracle="explorer",
        outcome="won",
        reason=f"won after {len(steps)} oracle steps",
        root_hash=root_hash,
        restored_hash=root_hash,
        weight_rule="lennorm",
        beta=1.0,
        is_trained=True,
        effective_depth=math.fsum(step.weight for step in steps),
        final_observation=f"You put it in fridge 1. {XSS if is_xss else 'You won.'}",
        steps=steps,
    )


def _evaluation(
    rng: np.random.Generator, number: int, panel: str, skill: float
) -> EvaluationPayload:
    outcomes = [
        OutcomePayload(
            task_id=f"{panel}/{i}",
            task_type=GOALS[i % 3][0],
            is_won=bool(rng.random() < skill),
            num_steps=int(rng.integers(6, 16)),
        )
        for i in range(NUM_TASKS)
    ]
    results: list[EvalResultPayload] = []
    for kind in ("all", *(goal[0] for goal in GOALS)):
        mine = [item for item in outcomes if kind in ("all", item.task_type)]
        num_won = sum(item.is_won for item in mine)
        low, high = wilson(num_won, len(mine))
        results.append(
            EvalResultPayload(
                task_type=kind,
                num_tasks=len(mine),
                num_won=num_won,
                rate=num_won / len(mine),
                low=low,
                high=high,
                mean_steps=float(np.mean([item.num_steps for item in mine])),
            )
        )
    return EvaluationPayload(
        evaluation_id=f"i{number}-{panel}",
        panel=panel,
        panel_hash="f" * 64,
        results=results,
        outcomes=outcomes,
    )


def wilson(num_won: int, num_tasks: int, z: float = 1.959964) -> tuple[float, float]:
    rate = num_won / num_tasks
    center = (rate + z * z / (2 * num_tasks)) / (1 + z * z / num_tasks)
    half = z / (1 + z * z / num_tasks)
    half *= math.sqrt(rate * (1 - rate) / num_tasks + z * z / (4 * num_tasks**2))
    return max(0.0, center - half), min(1.0, center + half)


def _metrics(
    rng: np.random.Generator,
    number: int,
    skill: float,
    episodes: list[EpisodePayload],
    branches: list[BranchPayload],
) -> dict[str, float]:
    if not number:
        return {"progress/env_steps": 0.0, "progress/tokens": 0.0, "time/iteration_s": 4.0}
    metrics = {
        "rollout/success": float(np.clip(skill + rng.normal(0, 0.06), 0, 1)),
        "rollout/steps": float(np.mean([len(item.steps) for item in episodes])),
        "rollout/valid": float(np.clip(0.8 + 0.2 * skill + rng.normal(0, 0.01), 0, 1)),
        "rollout/admissible": float(np.clip(0.7 + 0.3 * skill + rng.normal(0, 0.02), 0, 1)),
        "train/loss": float(rng.normal(0, 0.05)),
        "train/kl": math.nan if number == 5 else float(rng.random() * 0.02),
        "train/grad_norm": float(0.5 + rng.random()),
        "train/entropy": float(1.4 - skill),
        "time/iteration_s": float(9 + rng.random()),
        "time/rollout_s": float(4 + rng.random()),
        "time/update_s": float(3 + rng.random()),
        "progress/env_steps": 60.0 * number,
        "progress/tokens": 700.0 * number,
    }
    if branches:
        metrics |= {
            "sero/branches": float(len(branches)),
            "sero/effective_depth": float(np.mean([item.effective_depth for item in branches])),
            "sero/oracle_loss": float(1.5 - skill + rng.normal(0, 0.05)),
            "sero/agreement": float(skill),
            "sero/branch_success": 1.0,
            "time/branch_s": float(1 + rng.random()),
        }
    return metrics
