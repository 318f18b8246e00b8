"""Defaults that depend on the method and on the protocol whose published numbers a run is held
against.

A field that the user writes always wins; then what the estimator sets elsewhere
(`Estimator.defaults`: DAPO's clip range and rounds, GSPO's ratio), then the protocol's table below,
then the field's own default. The result is an ordinary config with every field written out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from pydantic import BaseModel

from sero_core.credit import ESTIMATORS

Protocol = Literal["default", "verl-agent"]
Table = dict[str, object]


def fill_defaults(given: Mapping[str, object]) -> Table:
    """`given` (a config as the user wrote it) with the fields that method and protocol set.

    Sections may be mappings or pydantic models (then the fields that were set count as written).
    Without a name the estimator is GRPO. Unknown names are left for the config's own validation to
    report.
    """
    written = _written(given)
    estimator = _name(written, "estimator", "grpo")
    filled = _merged(written, {"estimator": {"name": estimator}} | _estimator_defaults(estimator))
    if written.get("protocol") == "verl-agent":
        filled = _merged(filled, verl_agent(estimator, _name(written, "env", "alfworld")))
    return filled


def verl_agent(estimator: str, env: str) -> Table:
    """The setting behind the published numbers of the verl-agent line of work (docs/methods.md).

    Read from its public training scripts and code; `estimator` and `env` by their config names.
    """
    is_webshop, is_ppo, is_hgpo = env == "webshop", estimator == "ppo", estimator == "hgpo"
    max_steps = (30 if is_hgpo else 15) if is_webshop else 50
    return {
        "num_iterations": {"hgpo": 160, "gspo": 200}.get(estimator, 150),
        "prompt": {
            "name": "standard",
            "history_length": 2,
            "max_prompt_tokens": 4096 if is_webshop or is_hgpo else 2048,
        },
        "sampling": {"temperature": 1.0, "max_new_tokens": 512},
        "rollout": {
            "num_tasks": 128 if is_ppo else 16,
            "group_size": 1 if is_ppo else 8,
            "max_steps": max_steps,
            "success_reward": 10.0,
            "invalid_penalty": 0.1,
        },
        "estimator": _verl_agent_estimator(estimator, is_webshop),
        "loss": {
            "ratio": "token",
            "clip_low": 0.2,
            "clip_high": 0.2,
            "dual_clip": 3.0,
            "log_ratio": "clamped",
            "aggregation": "token-mean",
            "kl_coef": 0.01,
            "kl_estimator": "k3",
            "kl_in": "loss",
            "entropy_coef": 0.001,
            "old_logprobs": "recompute",
        },
        "optimizer": {
            "lr": 1e-6,
            "weight_decay": 0.01,
            "max_grad_norm": 1.0,
            "minibatch_rows": 64 if is_webshop else 256,
        },
        "evaluation": {"every": 5, "protocol": {"name": "paper"}, "temperature": 0.4},
    }


def _verl_agent_estimator(name: str, is_webshop: bool) -> Table:
    """Statistics over rows, the raw reward for a group of one, a penalty on its own row."""
    if name == "ppo":
        return {
            "level": "tokens",
            "penalty": "row",
            "gamma": 1.0,
            "lam": 1.0,
            "critic": {
                "lr": 1e-5,
                "value_clip": 0.5,
                "warmup_iterations": 0,
                "minibatch_rows": 64 if is_webshop else 256,
            },
        }
    conventions: Table = {"statistics": "rows", "penalty": "row", "singleton": "raw"}
    if name in ("dr_grpo", "rloo"):
        return conventions
    conventions |= {"ddof": 1, "eps": 1e-6, "std_floor": 0.0}
    if name in ("gigpo", "hgpo"):
        conventions |= {"normalize_std": not is_webshop, "gamma": 0.95, "anchor": "observation"}
    return conventions


def departures(config: BaseModel) -> list[tuple[str, object, object]]:
    """(field, what the estimator or protocol sets, what this config says) where they differ."""
    data = cast(Table, config.model_dump(mode="json"))
    estimator = _name(data, "estimator", "")
    expected = _estimator_defaults(estimator)
    if data.get("protocol") == "verl-agent":
        expected = _merged(expected, verl_agent(estimator, _name(data, "env", "")))
    says = flatten(data)
    return [
        (field, value, says.get(field))
        for field, value in flatten(expected).items()
        if says.get(field) != value
    ]


def flatten(data: Mapping[str, object], prefix: str = "") -> Table:
    """Nested tables as `{"a.b": value}`."""
    flat: Table = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            flat |= flatten(cast("Mapping[str, object]", value), f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _estimator_defaults(name: str) -> Table:
    found = next((part for part in ESTIMATORS if part.model_fields["name"].default == name), None)
    return {} if found is None else {key: dict(value) for key, value in found.defaults.items()}


def _name(data: Mapping[str, object], section: str, default: str) -> str:
    inside = data.get(section)
    if isinstance(inside, Mapping):
        return str(cast("Mapping[str, object]", inside).get("name", default))
    return default


def _merged(written: Mapping[str, object], defaults: Mapping[str, object]) -> Table:
    """`written`, and below it what only `defaults` has."""
    merged = dict(written)
    for key, value in defaults.items():
        inside = merged.get(key)
        if key not in merged:
            merged[key] = value
        elif isinstance(inside, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(
                cast("Mapping[str, object]", inside), cast("Mapping[str, object]", value)
            )
    return merged


def _written(data: Mapping[str, object]) -> Table:
    written: Table = {}
    for key, value in data.items():
        if isinstance(value, BaseModel):
            value = value.model_dump(exclude_unset=True) | _tag(value)
        written[key] = value
    return written


def _tag(part: BaseModel) -> Table:
    """The `name` of a member of a union, which is often left at its default."""
    return {key: value for key, value in part if key == "name"}
