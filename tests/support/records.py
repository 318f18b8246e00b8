"""Realistic records of training iterations: the same arguments give the same record.

They contain what has broken loaders before: Unicode outside the BMP, U+0000, quotes and braces,
empty lists and texts, NaN metrics, an episode without steps, branches of every outcome.
"""

from __future__ import annotations

import math
from typing import get_args

import numpy as np

from sero_core.types import (
    Branch,
    BranchOutcome,
    BranchStep,
    CheckpointRecord,
    Completion,
    Episode,
    Group,
    IterationRecord,
    Observation,
    Snapshot,
    Step,
    Task,
)
from sero_core.types_evaluation import EvalConditions, EvalOutcome, EvalResult, Evaluation

OUTCOMES: tuple[BranchOutcome, ...] = get_args(BranchOutcome)
TASK_TYPES = ("pick_and_place_simple", "look_at_obj_in_light", "pick_two_obj_and_place")
ACTIONS = (
    "go to desk 1",
    "open drawer 2",
    "take cd 3 from drawer 2",
    'examine "mug" {1}',
    "look",
)
CONDITIONS = EvalConditions(
    protocol="fixed",
    baseline="zero_shot",
    seeds=(1000,),
    temperature=0.4,
    max_new_tokens=512,
    max_steps=50,
    env_version="alfworld native 1",
    data_hash="d" * 16,
    prompt="standard, history 2",
    prompt_hash="e" * 16,
    engine="transformers 5.24.0, torch 2.13.0, float32 on cpu",
    policy_hash="a" * 16,
)
ODD_TEXTS = ("caf\u00e9 \u2615", "\U0001f9ed compass", 'quote " and \\ {brace}', "nul \0 here", "")


def iteration_record(
    iteration: int,
    *,
    num_groups: int = 2,
    group_size: int = 3,
    num_branches: int = 6,
    max_depth: int = 4,
    has_evaluation: bool = False,
    has_checkpoint: bool = False,
    prefix: str = "",
    seed: int = 0,
) -> IterationRecord:
    """One iteration. `prefix` goes before all ids; `seed` changes numbers and texts, not ids."""
    rng = np.random.default_rng([seed, iteration])
    groups = tuple(
        _group(rng, f"{prefix}i{iteration}g{index}", index, group_size)
        for index in range(num_groups)
    )
    episodes = [episode for group in groups for episode in group.episodes if episode.steps]
    branches = tuple(
        _branch(rng, episodes[number % len(episodes)], number, max_depth)
        for number in range(num_branches if episodes else 0)
    )
    metrics = {
        "rollout/success": float(np.mean([e.is_won for g in groups for e in g.episodes] or [0.0])),
        "train/loss": float(rng.normal()),
        "train/kl": math.nan if iteration % 3 == 0 else float(rng.random()),
        "train/grad_norm": math.inf if iteration % 5 == 4 else float(rng.random()),
        "sero/branches": float(len(branches)),
        "sero/effective_depth": float(np.mean([b.effective_depth for b in branches] or [0.0])),
        "time/iteration_s": float(rng.random() * 10),
    }
    evaluations: tuple[Evaluation, ...] = ()
    if has_evaluation:
        evaluations = tuple(
            _evaluation(rng, iteration, panel, prefix) for panel in ("valid_seen", "valid_unseen")
        )
        metrics |= {f"eval/{e.panel}": e.results[0].rate for e in evaluations}
    checkpoint = CheckpointRecord(
        iteration, f"checkpoints/iteration-{iteration:05d}", f"{iteration:064x}", 5_000_000_000
    )
    return IterationRecord(
        iteration=iteration,
        metrics=metrics,
        groups=groups,
        branches=branches,
        evaluations=evaluations,
        checkpoint=checkpoint if has_checkpoint else None,
    )


def _group(rng: np.random.Generator, group_id: str, index: int, size: int) -> Group:
    task = Task(
        task_id=f"train/{TASK_TYPES[index % 3]}-Mug-None-Desk-{index}/trial_{index:05d}",
        env="alfworld",
        split="train",
        task_type=TASK_TYPES[index % 3],
        path="/data/game.tw-pddl",
        content_hash=f"{index:064x}",
    )
    episodes = tuple(_episode(rng, f"{group_id}e{i}", task, i) for i in range(size))
    return Group(task, episodes)


def _episode(rng: np.random.Generator, episode_id: str, task: Task, index: int) -> Episode:
    num_steps = 0 if (index, task.task_type) == (2, TASK_TYPES[1]) else int(rng.integers(2, 6))
    steps = tuple(_step(rng, task, i) for i in range(num_steps))
    is_won = bool(rng.random() < 0.4)
    score = 1.0 if is_won else (None, 0.25)[index % 2]
    final = Observation(f"You see {ODD_TEXTS[index % 5]}", ("look",), is_won, True, score)
    return Episode(episode_id, task, index, steps, final, is_won, is_truncated=not is_won)


def _step(rng: np.random.Generator, task: Task, index: int) -> Step:
    action = ACTIONS[int(rng.integers(len(ACTIONS)))]
    num_tokens = int(rng.integers(0, 6))
    return Step(
        index=index,
        observation=_observation(rng, index),
        prompt_ids=(1, 2, 3),
        completion=Completion(
            token_ids=tuple(int(i) for i in rng.integers(0, 150_000, num_tokens)),
            logprobs=tuple(float(x) for x in -rng.random(num_tokens) * 5),
            text=f"<think>{ODD_TEXTS[index % 5]}</think><action>{action}</action>",
            is_truncated=False,
        ),
        action=action,
        is_valid=index % 4 != 3,
        is_admissible=index % 3 != 2,
        reward=float(rng.normal()),
        snapshot=Snapshot(task.task_id, (), f"{rng.integers(2**60):064x}"),
    )


def _observation(rng: np.random.Generator, index: int) -> Observation:
    text = f"You arrive at drawer {rng.integers(3)}. You see {ODD_TEXTS[index % 5]}"
    return Observation(text, () if index % 5 == 4 else ACTIONS)


def _branch(rng: np.random.Generator, episode: Episode, number: int, max_depth: int) -> Branch:
    outcome = OUTCOMES[number % len(OUTCOMES)]
    root_index = number // 6 % len(episode.steps)
    depth = 0 if outcome == "restore_mismatch" else int(rng.integers(1, max_depth + 1))
    steps: list[BranchStep] = []
    weight = 1.0
    for k in range(depth):
        steps.append(_branch_step(rng, episode, root_index, k, weight))
        weight *= steps[-1].compatibility
    root_hash = episode.steps[root_index].snapshot.state_hash
    return Branch(
        branch_id=f"{episode.episode_id}t{root_index}n{number}",
        episode_id=episode.episode_id,
        task=episode.task,
        root_index=root_index,
        root_rule="disagree",
        oracle="explorer",
        outcome=outcome,
        reason=f"{outcome} {ODD_TEXTS[number % 5]}",
        root_hash=root_hash,
        restored_hash="0" * 64 if outcome == "restore_mismatch" else root_hash,
        weight_rule="lennorm",
        beta=1.0,
        is_trained=outcome == "won",
        steps=tuple(steps),
        final_observation=None if not steps else Observation("You win \u2713", ()),
        tau=1.0 + number % 2,
        control="shuffled" if number % 3 == 2 else None,
    )


def _branch_step(
    rng: np.random.Generator, episode: Episode, root_index: int, depth: int, weight: float
) -> BranchStep:
    num_tokens = int(rng.integers(2, 7))
    logprobs = tuple(float(x) for x in -rng.random(num_tokens))
    mean = sum(logprobs) / num_tokens
    policy_index = root_index + depth
    has_policy = policy_index < len(episode.steps)
    return BranchStep(
        depth=depth,
        observation=_observation(rng, depth),
        action=ACTIONS[depth % len(ACTIONS)],
        prompt=f"Your task: {episode.task.task_id}. {ODD_TEXTS[depth % 5]}",
        prompt_ids=(4, 5),
        token_ids=tuple(int(i) for i in rng.integers(0, 150_000, num_tokens)),
        tokens=tuple(ODD_TEXTS[i % 5] for i in range(num_tokens)),
        logprobs=logprobs,
        scored=tuple(i > 0 for i in range(num_tokens)),
        action_logprob_mean=mean,
        action_logprob_sum=sum(logprobs),
        compatibility=math.exp(mean),
        weight=weight,
        policy_action=episode.steps[policy_index].action if has_policy else None,
        probe_action=None if depth % 2 else "look",
        reward=0.0,
        state_hash=f"{rng.integers(2**60):064x}",
        thought=("template", "policy", "replaced", None)[depth % 4],
        loss_mask=(True,) * num_tokens if depth % 3 == 1 else None,
        loss_weight=1.0 - weight if depth % 2 else None,
        greedy_logprob_mean=-float(rng.random()) if depth % 2 else None,
        admissible_logprobs=tuple(float(x) for x in -rng.random(5) * 9) if depth % 3 else None,
        admissible_index=int(rng.integers(5)) if depth % 3 else None,
        num_samples=8 if depth % 4 else None,
        num_matches=int(rng.integers(9)) if depth % 4 else None,
    )


def _evaluation(rng: np.random.Generator, iteration: int, panel: str, prefix: str) -> Evaluation:
    outcomes = tuple(
        EvalOutcome(
            f"{panel}/{i}",
            TASK_TYPES[i % 3],
            seed=1000,
            is_won=bool(rng.random() < 0.5),
            score=float(rng.random()),
            num_steps=int(rng.integers(1, 30)),
        )
        for i in range(12)
    )
    results: list[EvalResult] = []
    for task_type in ("all", *TASK_TYPES):
        mine = [o for o in outcomes if task_type in ("all", o.task_type)]
        num_won = sum(o.is_won for o in mine)
        rate = num_won / len(mine)
        steps = float(np.mean([o.num_steps for o in mine]))
        results.append(
            EvalResult(
                panel=panel,
                task_type=task_type,
                num_tasks=len(mine),
                num_episodes=len(mine),
                num_won=num_won,
                rate=rate,
                low=rate / 2,
                high=1.0,
                mean_score=float(np.mean([o.score for o in mine])),
                mean_steps=steps,
            )
        )
    evaluation_id = f"{prefix}i{iteration}-{panel}"
    return Evaluation(
        evaluation_id=evaluation_id,
        iteration=iteration,
        panel=panel,
        panel_hash="f" * 64,
        macro_rate=float(np.mean([result.rate for result in results[1:]])),
        conditions=CONDITIONS,
        results=tuple(results),
        outcomes=outcomes,
    )
