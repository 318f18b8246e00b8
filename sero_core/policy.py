"""The policy: a causal language model with its tokenizer, and the one way its logits are computed.

Folders hold `config.json`, safetensors and a fast tokenizer. Nothing is downloaded and nothing is
unpickled. The model stays in eval mode, in training too, so the sampled and the trained
log-probabilities come from the same function (docs/correctness.md T12).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils import logging

from sero_core.adapter import (
    ADAPTER_WEIGHTS,
    add_adapter,
    base_of,
    has_adapter,
    load_adapter,
    save_adapter,
)
from sero_core.model_modes import attention, checkpointed_layers
from sero_core.types import SeroError

if TYPE_CHECKING:
    from peft import PeftModel

    from sero_core.sections import PolicyConfig

DEMO_POLICY = Path(__file__).parent / "demo_policy"
"""The policy that ships with the package; `path = "demo"` names it."""

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")


class PolicyError(SeroError):
    """A policy folder or model that cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter inside a policy's model, and the base it belongs to."""

    peft: PeftModel
    base: str
    base_hash: str


@dataclass(frozen=True, slots=True)
class Policy:
    """A model, its tokenizer and the tokens that end an answer.

    `stop_ids` are all end-of-sequence ids of the generation config, the model config and the
    tokenizer, and the end-of-turn token of the chat template. Parameters are float32; `dtype` is
    the precision of the forward pass (bfloat16 runs under autocast, so a learning rate of 1e-6
    still moves the weights). Log-probabilities are float32 always. `is_base` is a view of a policy
    with its adapter switched off: the reference of LoRA training, without a second model.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    adapter: Adapter | None = None
    is_base: bool = False
    is_checkpointed: bool = False
    train_attention: str = "sdpa"

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def body(self) -> nn.Module:
        """The model without its output projection: token ids to hidden states."""
        return self.model.base_model

    @property
    def head(self) -> nn.Module:
        """The output projection: hidden states (N, H) to logits (N, V)."""
        return cast(nn.Module, self.model.get_output_embeddings())

    @property
    def trained(self) -> list[tuple[str, nn.Parameter]]:
        """Names and parameters that an update changes: all, or the adapter's."""
        return [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The precision of the forward pass."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    @contextlib.contextmanager
    def forward_pass(self) -> Generator[None]:
        """Around a pass over whole rows without a cache: precision, attention, checkpointed layers
        where a gradient is wanted, adapter off for a base view."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.autocast())
            if self.is_base and self.adapter is not None:
                stack.enter_context(self.adapter.peft.disable_adapter())
            if self.train_attention != "sdpa":
                stack.enter_context(attention(self.model, self.train_attention))
            if self.is_checkpointed and torch.is_grad_enabled():
                stack.enter_context(checkpointed_layers(self.model))
            yield

    def require_eval_mode(self) -> None:
        """Errors: `PolicyError` if a part of the model is in training mode (active dropout)."""
        active = [name for name, module in self.model.named_modules() if module.training]
        if active:
            raise PolicyError(
                f"the model must stay in eval mode (dropout off), got training mode in {active[:3]}"
            )


def open_policy(config: PolicyConfig, folder: Path | None, seed: int) -> Policy:
    """The policy of a run, ready to train: `folder` (a checkpoint) or else `config.path`, with a
    new adapter drawn from `seed` where LoRA is on and `folder` holds none.

    Errors: `PolicyError` as `load_policy`, or if the folder's adapter and the config disagree.
    """
    path = config.path if folder is None else str(folder)
    policy = load_policy(path, config.dtype, config.num_threads)
    if policy.adapter is not None and config.lora.rank == 0:
        raise PolicyError(f"{path} holds an adapter, but policy.lora.rank is 0")
    if config.gradient_checkpointing:
        policy.model.activation_checkpointing_enable({"use_reentrant": False})
        policy.model.disable_input_require_grads()  # a hook that only reentrant checkpoints need
        _check_layers_have_no_dropout(policy)
    policy = replace(
        policy,
        is_checkpointed=config.gradient_checkpointing,
        train_attention=config.train_attention,
    )
    if config.lora.rank == 0 or policy.adapter is not None:
        return policy
    base_hash = weights_hash(_folder(path))
    adapted = add_adapter(policy.model, config.lora, seed)
    return replace(policy, adapter=Adapter(adapted, path, base_hash))


def load_policy(
    path: str, dtype: str = "float32", num_threads: int = 1, device: str | None = None
) -> Policy:
    """Read a policy from a local folder (`demo` = the one that ships with the package).

    A folder with an adapter is read with its base model, whose weights must be those that it was
    trained on. `dtype` is `float32` or `bfloat16`; `device` defaults to `cuda` where there is one,
    else `cpu`; `num_threads` sets torch's threads for this process (CPU only).
    Errors: `PolicyError` for a missing folder, no safetensors, an unknown dtype, or a model whose
    logits are not `head(body(ids))`; `AdapterError` for an adapter on another base.
    """
    folder = _folder(path)
    if dtype not in _DTYPES:
        raise PolicyError(f"policy dtype: got {dtype!r}, expected one of {sorted(_DTYPES)}")
    if has_adapter(folder):
        base, _ = base_of(folder)
        policy = load_policy(base, dtype, num_threads, device)
        base_hash = weights_hash(_folder(base))
        adapted = load_adapter(policy.model, folder, base_hash)
        return replace(policy, adapter=Adapter(adapted, base, base_hash))
    if not (folder / "config.json").is_file() or not _weight_files(folder):
        raise PolicyError(f"policy {path!r}: expected config.json and *.safetensors in {folder}")
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if place.type == "cpu":
        torch.set_num_threads(num_threads)
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="sdpa",
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
    )
    cast(nn.Module, model).to(place)
    return make_policy(cast(PreTrainedModel, model), load_tokenizer(folder), _DTYPES[dtype])


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a policy folder, exactly as it was saved.

    `AutoTokenizer` of transformers 5 picks the class by the model type and rebuilds the
    pre-tokenizer of a Qwen2 model in place of the stored one, which changes the ids; so where there
    is a `tokenizer.json` it is read as it is.
    """
    if (folder / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def make_policy(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dtype: torch.dtype = torch.float32
) -> Policy:
    """Wrap a model that is already in memory: eval mode, stop ids, and a check of its logits.

    Errors: `PolicyError` if logits are not `head(body(ids))` (scaled or capped logits), or if a
    layer does not attend to the whole past (sliding windows, recurrent layers).
    """
    layers = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if layers != {"full_attention"}:
        raise PolicyError(
            f"{type(model).__name__}: layers are {sorted(layers)}, expected full_attention only"
        )
    model.eval()
    policy = Policy(model, tokenizer, _stop_ids(model, tokenizer), dtype)
    probe_BL = torch.zeros((1, 2), dtype=torch.long, device=policy.device)
    with torch.inference_mode():
        expected = model(input_ids=probe_BL, use_cache=False).logits.float()
        got = policy.head(policy.body(input_ids=probe_BL, use_cache=False).last_hidden_state)
    if not torch.allclose(got.float(), expected, atol=1e-4, rtol=1e-4):
        raise PolicyError(f"{type(model).__name__}: its logits are not head(body(ids))")
    return policy


def save_policy(policy: Policy, folder: Path) -> None:
    """Write config, float32 safetensors and tokenizer, or the adapter with the name of its base and
    the tokenizer; `load_policy` reads the folder back."""
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable_progress_bar()
    if policy.adapter is None:
        policy.model.save_pretrained(folder, safe_serialization=True)
    else:
        save_adapter(policy.adapter.peft, folder, policy.adapter.base, policy.adapter.base_hash)
    policy.tokenizer.save_pretrained(folder)


def weights_hash(folder: Path) -> str:
    """SHA-256 (hex) of the safetensors file, the model's or the adapter's; of all shards in name
    order where there are several.

    Errors: `PolicyError` if the folder has no weights.
    """
    files = [folder / ADAPTER_WEIGHTS] if has_adapter(folder) else _weight_files(folder)
    if not files:
        raise PolicyError(f"no model*.safetensors in {folder}")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def parameters_hash(policy: Policy) -> str:
    """SHA-256 (16 hex digits) over the parameters: names, shapes and float32 values, by name.

    It does not depend on how a checkpoint is split into files: the policy in memory and its
    checkpoint, loaded again, have the same.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(policy.model.named_parameters()):
        values = parameter.detach().to("cpu", torch.float32).contiguous()
        digest.update(f"{name} {tuple(values.shape)} ".encode())
        digest.update(values.numpy().data)
    return digest.hexdigest()[:16]


def reference_policy(policy: Policy, config: PolicyConfig) -> Policy:
    """The policy that the run started from, frozen: the anchor of the KL term. With LoRA it is the
    policy's own model with the adapter off, else `config.path` as a second model."""
    if policy.adapter is not None:
        return replace(policy, is_base=True)
    return clone_policy(load_policy(config.path, config.dtype, config.num_threads))


def clone_policy(policy: Policy) -> Policy:
    """A frozen copy with its own parameters, of a policy without an adapter."""
    model = type(policy.model)(policy.model.config)
    model.load_state_dict(policy.model.state_dict())
    cast(nn.Module, model).to(policy.device).requires_grad_(False).eval()
    return Policy(model, policy.tokenizer, policy.stop_ids, policy.dtype)


def log_softmax_at(
    logits_NV: torch.Tensor, target_N: torch.Tensor, temperature_N: torch.Tensor
) -> torch.Tensor:
    """log softmax(logits / temperature)[target] in float32, shape (N,). Temperatures are > 0."""
    return log_softmax(logits_NV, temperature_N).gather(1, target_N[:, None])[:, 0]


def log_softmax(logits_NV: torch.Tensor, temperature_N: torch.Tensor) -> torch.Tensor:
    """log softmax(logits / temperature) over the vocabulary, (N, V) float32."""
    return torch.log_softmax(logits_NV.float() / temperature_N[:, None], dim=-1)


def _folder(path: str) -> Path:
    return DEMO_POLICY if path == "demo" else Path(path)


def _weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("model*.safetensors"))


def _check_layers_have_no_dropout(policy: Policy) -> None:
    """Errors: `PolicyError` if a layer itself, in training mode, gives other numbers."""
    probe_BL = torch.zeros((1, 8), dtype=torch.long, device=policy.device)
    with torch.inference_mode():
        expected = policy.body(input_ids=probe_BL, use_cache=False).last_hidden_state
        with checkpointed_layers(policy.model):
            got = policy.body(input_ids=probe_BL, use_cache=False).last_hidden_state
    if not torch.equal(got, expected):
        raise PolicyError(
            f"{type(policy.model).__name__}: a layer has dropout of its own, so "
            "policy.gradient_checkpointing would train another function than the sampled one"
        )


def _stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    generation = cast("GenerationConfig | None", model.generation_config)
    found: set[int] = set()
    configured = generation.eos_token_id if generation is not None else None
    for value in (tokenizer.eos_token_id, model.config.eos_token_id, configured):
        ids = value if isinstance(value, list) else [value]
        found.update(token for token in ids if isinstance(token, int))
    vocabulary = tokenizer.get_vocab()
    found.update(vocabulary[token] for token in _END_OF_TURN if token in vocabulary)
    if not found:
        raise PolicyError("the model has no end-of-sequence token, so no answer could ever end")
    return tuple(sorted(found))
