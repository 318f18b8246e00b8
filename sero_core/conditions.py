"""The conditions of an evaluation, as they are recorded with it (`types.EvalConditions`)."""

from __future__ import annotations

import hashlib
from importlib.metadata import version

from sero_core.envs import env_version
from sero_core.evaluate import Panel
from sero_core.policy import Policy, parameters_hash
from sero_core.prompts import PastStep, PromptBuilder
from sero_core.sections import PromptConfig, RolloutConfig, TransformersEngine
from sero_core.sections_evaluation import EvaluationConfig
from sero_core.sections_webshop import EnvConfig
from sero_core.types import Observation
from sero_core.types_evaluation import EvalConditions

MAX_PROBE_TOKENS = 131_072


def evaluation_conditions(
    panel: Panel,
    *,
    evaluation: EvaluationConfig,
    env: EnvConfig,
    prompt: PromptConfig,
    engine: TransformersEngine,
    rollout: RolloutConfig,
    max_new_tokens: int,
    builder: PromptBuilder,
    policy: Policy,
) -> EvalConditions:
    """What decides the outcomes of this panel under the policy's current weights."""
    return EvalConditions(
        protocol=evaluation.protocol.label,
        baseline=evaluation.baseline.label,
        seeds=evaluation.seeds,
        temperature=evaluation.temperature,
        max_new_tokens=max_new_tokens,
        max_steps=rollout.max_steps,
        env_version=env_version(env),
        data_hash=panel.data_hash,
        prompt=f"{prompt.name}, history {prompt.history_length}",
        prompt_hash=prompt_hash(builder, evaluation.baseline.source(env.name)),
        engine=f"{engine.name} {version('transformers')}, torch {version('torch')}, "
        f"{str(policy.dtype).removeprefix('torch.')} on {policy.device.type}",
        policy_hash=parameters_hash(policy),
    )


def prompt_hash(builder: PromptBuilder, baseline: str) -> str:
    """Covers what any prompt's text depends on but its state (16 hex digits of a SHA-256).

    Hashed are the prompts of a first and a later step of a made-up episode, in the tokenizer's chat
    template and with its token ids, and what the baseline puts before them.
    """
    first = Observation("You are in a room. Your task is to: put a mug in desk.", ("look", "go on"))
    later = Observation("You see a desk 1, and a mug 1.", ("take mug 1 from desk 1",))
    past = [PastStep(f"observation {i}", f"action {i}") for i in range(70)]
    builder = builder.limited_to(MAX_PROBE_TOKENS)
    prompts = [
        builder.build("put a mug in desk.", [], first),
        builder.build("put a mug in desk.", past, later),
    ]
    parts = [str((prompt.text, prompt.ids)) for prompt in prompts]
    parts.append(baseline)
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]
