"""Optimizer state on disk: tensors as safetensors, settings as JSON. Nothing is pickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from sero_core.types import SeroError

TENSORS = "optimizer.safetensors"
SETTINGS = "optimizer.json"


def save_optimizer(optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Write `optimizer.safetensors` (keys `<parameter>/<state>`) and `optimizer.json`."""
    state: dict[str, Any] = optimizer.state_dict()
    names = _names(state)
    tensors = {
        f"{names[index]}/{key}": value.detach().cpu().contiguous()
        for index, values in state["state"].items()
        for key, value in values.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / TENSORS)
    (folder / SETTINGS).write_text(json.dumps({"param_groups": state["param_groups"]}, indent=1))


def load_optimizer(optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Restore what `save_optimizer` wrote into an optimizer over the same parameters.

    Errors: `SeroError` if the parameters differ in name, order or shape.
    """
    tensors = load_file(folder / TENSORS)
    settings = json.loads((folder / SETTINGS).read_text())
    current: dict[str, Any] = optimizer.state_dict()
    names, saved_names = _names(current), _names(settings)
    if names != saved_names:
        differing = sorted(set(names.values()) ^ set(saved_names.values()))
        raise SeroError(f"optimizer state in {folder} is of other parameters: {differing[:3]}")
    shapes = {
        name: parameter.shape
        for group in optimizer.param_groups
        for name, parameter in zip(group["param_names"], group["params"], strict=True)
    }
    index_of = {name: index for index, name in names.items()}
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        name, _, field = key.rpartition("/")
        if value.ndim > 0 and value.shape != shapes[name]:
            raise SeroError(f"optimizer state {key}: got {value.shape}, expected {shapes[name]}")
        state.setdefault(index_of[name], {})[field] = value
    for group in settings["param_groups"]:
        group["betas"] = tuple(group["betas"])
    optimizer.load_state_dict({"state": state, "param_groups": settings["param_groups"]})


def _names(state: dict[str, Any]) -> dict[int, str]:
    return {
        index: name
        for group in state["param_groups"]
        for index, name in zip(group["params"], group["param_names"], strict=True)
    }
