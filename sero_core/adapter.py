"""LoRA adapters (arXiv 2106.09685) on a frozen base model, by the peft library.

An adapter folder is what peft writes (`adapter_model.safetensors`, `adapter_config.json`) and
`base_model.json`: where the base is and the SHA-256 of its weights, since an adapter on another
base is silent nonsense. peft takes seconds to import, so it is imported where it is used.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

from sero_core.seeds import derive_seed
from sero_core.types import SeroError

if TYPE_CHECKING:
    from peft import PeftModel

    from sero_core.sections import LoraConfig

ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE_FILE = "base_model.json"


class AdapterError(SeroError):
    """An adapter that does not fit the model or its base; the message says which and why."""


def add_adapter(model: PreTrainedModel, config: LoraConfig, seed: int) -> PeftModel:
    """W x + (alpha / rank) B A x on the target layers of `model`, in place; B = 0 at the start.

    All other parameters are frozen; A is drawn from `seed`. No dropout, so that the sampler and the
    trainer are one function (docs/correctness.md T12).
    Errors: `AdapterError` if a target names no linear layer.
    """
    import peft

    targets = [name.strip() for name in config.target_modules.split(",")]
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=0.0,
        bias="none",
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        task_type=peft.TaskType.CAUSAL_LM,
    )
    with _quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "lora"))
        try:
            adapted = peft.get_peft_model(model, settings)
        except ValueError as error:
            raise AdapterError(f"policy.lora.target_modules {targets}: {error}") from None
    model.eval()
    return adapted  # pyright: ignore[reportReturnType] - never the mixed variant


def load_adapter(model: PreTrainedModel, folder: Path, base_hash: str) -> PeftModel:
    """Put the adapter of `folder` on its base model, in place, trainable.

    Errors: `AdapterError` if `base_hash`, the SHA-256 of the weights of `model`, is another one, or
    if there are no safetensors (nothing is unpickled).
    """
    import peft

    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise AdapterError(f"adapter {folder}: expected {ADAPTER_WEIGHTS}")
    expected = base_of(folder)[1]
    if base_hash != expected:
        raise AdapterError(
            f"adapter {folder}: the base model's weights are {base_hash}, expected {expected}"
        )
    with _quiet():
        adapted = peft.PeftModel.from_pretrained(
            model, folder, is_trainable=True, local_files_only=True
        )
    adapted.eval()
    return adapted


def save_adapter(adapter: PeftModel, folder: Path, base: str, base_hash: str) -> None:
    """Write the adapter alone, float32, and what it belongs to."""
    adapter.save_pretrained(str(folder), save_embedding_layers=False)
    (folder / "README.md").unlink()  # peft's model card, a form to fill in
    path = folder / "adapter_config.json"  # its sets are written in another order by each process
    config = json.loads(path.read_text())
    ordered = {k: sorted(v) if isinstance(v, list) else v for k, v in sorted(config.items())}
    path.write_text(json.dumps(ordered, indent=2) + "\n")
    text = json.dumps({"path": base, "weights_hash": base_hash}, indent=1)
    (folder / BASE_FILE).write_text(text + "\n")


def base_of(folder: Path) -> tuple[str, str]:
    """(path, SHA-256 of the weights) of the base model that the adapter in `folder` needs."""
    data = json.loads((folder / BASE_FILE).read_text())
    return data["path"], data["weights_hash"]


def has_adapter(folder: Path) -> bool:
    return (folder / BASE_FILE).is_file()


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """peft asks transformers for an attribute under its old name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")
        yield
