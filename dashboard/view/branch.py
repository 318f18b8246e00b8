"""A branch and its episode as the data of the stepper component."""

from __future__ import annotations

from typing import TypedDict

from backend.schemas import BranchDetail, EpisodeDetail


class BranchStepData(TypedDict):
    depth: int
    observation: str
    admissible: list[str]
    action: str
    tokens: list[str]
    logprobs: list[float | None]
    scored: list[bool]
    action_logprob_mean: float | None
    action_logprob_sum: float | None
    compatibility: float | None
    weight: float | None
    policy_action: str | None
    probe_action: str | None
    reward: float | None
    greedy_logprob_mean: float | None
    admissible_logprobs: list[float | None] | None
    admissible_index: int | None
    num_samples: int | None
    num_matches: int | None


class BranchData(TypedDict):
    outcome: str
    reason: str
    root_index: int
    root_rule: str
    oracle: str
    weight_rule: str
    beta: float
    tau: float
    is_trained: bool
    effective_depth: float | None
    root_hash: str
    restored_hash: str
    final_observation: str | None
    steps: list[BranchStepData]


class PolicyStepData(TypedDict):
    index: int
    observation: str
    admissible: list[str]
    action: str
    response: str
    logprobs: list[float | None]
    is_valid: bool
    is_admissible: bool
    reward: float | None


class PolicyData(TypedDict):
    is_won: bool
    is_truncated: bool
    final_observation: str
    steps: list[PolicyStepData]


class StepperData(TypedDict):
    """Everything the component shows. `null` in a number = not finite in the log.

    `siblings` are the permalinks of the episode's branches by root, this one among them.
    """

    id: str
    branch: BranchData
    policy: PolicyData
    siblings: list[str]


def stepper_data(branch: BranchDetail) -> StepperData:
    """All of one branch, preloaded, so that a step needs neither Python nor HTTP."""
    return {
        "id": branch.id,
        "branch": _branch(branch),
        "policy": _policy(branch.episode),
        "siblings": siblings(branch),
    }


def siblings(branch: BranchDetail) -> list[str]:
    """Permalinks of the branches of the same episode, by root, the given one included."""
    if branch.episode is None:
        return [branch.id]
    found = sorted(branch.episode.branches, key=lambda ref: (ref.root_index, ref.branch_id))
    return [ref.id for ref in found] or [branch.id]


def _branch(branch: BranchDetail) -> BranchData:
    return {
        "outcome": branch.outcome,
        "reason": branch.reason,
        "root_index": branch.root_index,
        "root_rule": branch.root_rule,
        "oracle": branch.oracle,
        "weight_rule": branch.weight_rule,
        "beta": branch.beta,
        "tau": branch.tau,
        "is_trained": branch.is_trained,
        "effective_depth": branch.effective_depth,
        "root_hash": branch.root_hash,
        "restored_hash": branch.restored_hash,
        "final_observation": branch.final_observation,
        "steps": [
            {
                "depth": step.depth,
                "observation": step.observation,
                "admissible": step.admissible,
                "action": step.action,
                "tokens": step.tokens,
                "logprobs": step.logprobs,
                "scored": step.scored,
                "action_logprob_mean": step.action_logprob_mean,
                "action_logprob_sum": step.action_logprob_sum,
                "compatibility": step.compatibility,
                "weight": step.weight,
                "policy_action": step.policy_action,
                "probe_action": step.probe_action,
                "reward": step.reward,
                "greedy_logprob_mean": step.greedy_logprob_mean,
                "admissible_logprobs": step.admissible_logprobs,
                "admissible_index": step.admissible_index,
                "num_samples": step.num_samples,
                "num_matches": step.num_matches,
            }
            for step in branch.steps
        ],
    }


def _policy(episode: EpisodeDetail | None) -> PolicyData:
    if episode is None:
        return {"is_won": False, "is_truncated": False, "final_observation": "", "steps": []}
    return {
        "is_won": episode.is_won,
        "is_truncated": episode.is_truncated,
        "final_observation": episode.final_observation,
        "steps": [
            {
                "index": step.index,
                "observation": step.observation,
                "admissible": step.admissible,
                "action": step.action,
                "response": step.response,
                "logprobs": step.logprobs,
                "is_valid": step.is_valid,
                "is_admissible": step.is_admissible,
                "reward": step.reward,
            }
            for step in episode.steps
        ],
    }
