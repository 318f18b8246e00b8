"""Switches of a transformers model that hold for one training pass and are undone after it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


@contextlib.contextmanager
def attention(model: PreTrainedModel, name: str) -> Generator[None]:
    """Another attention kernel inside the block.

    Errors: ImportError or ValueError of transformers where the kernel is not installed or the
    model does not know it.
    """
    before = model.config._attn_implementation  # pyright: ignore[reportPrivateUsage]
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before or "eager")


@contextlib.contextmanager
def checkpointed_layers(model: PreTrainedModel) -> Generator[None]:
    """Layers keep their inputs only and are computed again in the backward pass.

    transformers does so in training mode alone, which would switch dropout on. So the flag is set
    on the layers themselves, not on what is inside of them: attention, MLP and dropout modules stay
    in eval mode.
    """
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
