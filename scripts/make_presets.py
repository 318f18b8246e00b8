"""Write `configs/paper/*.toml`: the literature's setting for two models, two environments and every
method with published numbers.

    python scripts/make_presets.py [OUT]

One table per thing that varies, so that no two files drift apart; a test compares the files with
what this writes. `protocol = "verl-agent"` holds the hyperparameters (docs/methods.md); a file adds
what to train, on what, and the memory it takes.
"""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "configs" / "paper"
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Model:
    """A Qwen2 architecture as its published `config.json` has it."""

    key: str
    path: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    is_tied: bool

    @property
    def num_parameters(self) -> int:
        """Embeddings, attention with biases on q, k and v, gated MLP, two norms a layer."""
        kv_size = self.num_kv_heads * self.head_size
        attention = 2 * self.hidden_size**2 + 2 * self.hidden_size * kv_size
        attention += self.hidden_size + 2 * kv_size
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.is_tied else 2)
        return embeddings + self.num_layers * layer + self.hidden_size

    def num_adapter_parameters(self, rank: int) -> int:
        """Two factors beside each linear layer but the output projection."""
        kv_size = self.num_kv_heads * self.head_size
        attention = 4 * self.hidden_size + 2 * (self.hidden_size + kv_size)
        mlp = 3 * (self.hidden_size + self.intermediate_size)
        return self.num_layers * rank * (attention + mlp)

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads


@dataclass(frozen=True, slots=True)
class World:
    """An environment's section, what must be there first, and the oracle that plays it."""

    name: str
    title: str
    section: str
    before: str
    oracle: str
    max_oracle_steps: int
    max_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Arm:
    """The switches of SERO that an ablation sets; the defaults are the method."""

    horizon: int = 0
    root_rule: str = "disagree"
    per_group: int = 2
    beta: float = 1.0


@dataclass(frozen=True, slots=True)
class Method:
    """An estimator, and SERO beside it. `max_prompt_tokens` where the protocol has another."""

    key: str
    title: str
    estimator: str
    arm: Arm | None = None
    max_prompt_tokens: int = 0


MODELS = (
    Model("qwen2.5-1.5b", "models/Qwen2.5-1.5B-Instruct", 151936, 1536, 8960, 28, 12, 2, True),
    Model("qwen2.5-7b", "models/Qwen2.5-7B-Instruct", 152064, 3584, 18944, 28, 28, 4, False),
)
WORLDS = (
    World(
        name="alfworld",
        title="ALFWorld",
        section='data_root = "~/.cache/alfworld"',
        before="`sero data alfworld` (the official games)",
        oracle="explorer",
        max_oracle_steps=30,
        max_prompt_tokens=2048,
    ),
    World(
        name="webshop",
        title="WebShop",
        section='data_root = "~/.cache/webshop"',
        before="`sero data webshop prepare` with the 1,000-product files, to ~/.cache/webshop",
        oracle="webshop",
        max_oracle_steps=10,
        max_prompt_tokens=4096,
    ),
)
METHODS = (
    Method("grpo", "GRPO", "grpo"),
    Method("gigpo", "GiGPO", "gigpo"),
    Method("hgpo", "HGPO", "hgpo", max_prompt_tokens=4096),
    Method("rloo", "RLOO", "rloo"),
    Method("ppo", "PPO with a critic", "ppo"),
    Method("sero", "SERO on GRPO: full continuations, reachability-weighted", "grpo", Arm()),
    Method("sero_root-only", "SERO's ablation: only the root step", "grpo", Arm(horizon=1)),
    Method(
        "sero_uniform",
        "SERO's ablation: full continuations, equal weights",
        "grpo",
        Arm(beta=0.0),
    ),
    Method(
        "sero_reachability",
        "SERO's ablation arm with reachability weights. It is the method itself: its records are "
        "those of the preset without the suffix",
        "grpo",
        Arm(),
    ),
    Method(
        "sero_demonstrations-only",
        "SERO's ablation: demonstrations from the start instead of visited states",
        "grpo",
        Arm(root_rule="start", per_group=1),
    ),
)
BATCH_SIZE = 64
MAX_NEW_TOKENS = 512
MICROBATCH_TOKENS = 16_384
LORA_RANK = 64
GPUS = (
    ("one GPU with 80 GB", 76.5),
    ("one GPU with 141 GB (H200)", 134.0),
    ("one GPU with 288 GB (B300); a model is not sharded over GPUs", 274.0),
)
"""With what a run may use of each."""


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        for world in WORLDS:
            for method in METHODS:
                name = f"{world.name}_{model.key}_{method.key}"
                (out / f"{name}.toml").write_text(preset(name, model, world, method))


def preset(name: str, model: Model, world: World, method: Method) -> str:
    """The text of one file."""
    return (
        f"{header(name, model, world, method)}"
        f'name = "{name}"\nseed = 0\nprotocol = "verl-agent"\n\n'
        f'[env]\nname = "{world.name}"\n{world.section}\n\n'
        f'[policy]\npath = "{model.path}"\ndtype = "bfloat16"\ngradient_checkpointing = true\n\n'
        f'[engine]\nname = "transformers"\nbatch_size = {BATCH_SIZE}\n\n'
        f'[estimator]\nname = "{method.estimator}"\n\n'
        f'[optimizer]\nmicrobatch_tokens = {MICROBATCH_TOKENS}\nlayout = "bucketed"\n\n'
        f"{'' if method.arm is None else sero(method.arm, world)}"
        f'[evaluation.protocol]\nname = "paper"\n'
    )


def sero(arm: Arm, world: World) -> str:
    """The `[sero]` section of an arm."""
    return (
        f"[sero]\nhorizon = {arm.horizon}\nmax_oracle_steps = {world.max_oracle_steps}\n\n"
        f'[sero.oracle]\nname = "{world.oracle}"\n\n'
        f'[sero.root]\nrule = "{arm.root_rule}"\nper_group = {arm.per_group}\n\n'
        f'[sero.reachability]\nrule = "lennorm"\nbeta = {arm.beta}\n\n'
    )


def header(name: str, model: Model, world: World, method: Method) -> str:
    """What it is, what it needs, how it is run."""
    used = memory(model, world, method)
    gpu = _gpu(used)
    lines = [
        f"{method.title}. {model.path.partition('/')[2]} on {world.title}, in the setting of the "
        "published numbers.",
        f"Hardware: {gpu}; about {used:.0f} GB are used (computed, not measured).",
    ]
    if gpu not in dict(GPUS[:2]):
        reduced = memory(model, world, method, is_lora=True)
        lines.append(
            f"With --set policy.lora.rank={LORA_RANK} --set optimizer.lr=1e-5 it takes about "
            f"{reduced:.0f} GB: {_gpu(reduced)}. That is not the published setting."
        )
    lines.append(f"First: {world.before}; the model's folder at {model.path}.")
    wrapped = [part for line in lines for part in textwrap.wrap(line, 98)]
    command = f"Run: sero train configs/paper/{name}.toml --out runs/{name}"
    return "".join(f"# {line}\n" for line in [*wrapped, command])


def memory(model: Model, world: World, method: Method, *, is_lora: bool = False) -> float:
    """Gigabytes at the larger of the two peaks, generation and update.

    Float32 weights, gradients and two moments of what is trained (16 bytes a parameter), policy
    and PPO's critic alike, or of an adapter beside frozen weights (4); a frozen copy for the KL
    (4; none with an adapter); the bfloat16 copy of the weights inside a forward pass (2).
    Generation adds the keys and values of a batch, twice while they grow; the update adds one
    float32 residual per layer and token, and one layer's insides.
    """
    parameters, num_models = model.num_parameters, 2 if method.estimator == "ppo" else 1
    if is_lora:
        held = num_models * (4 * parameters + 16 * model.num_adapter_parameters(LORA_RANK))
    else:
        held = 16 * num_models * parameters + 4 * parameters
    held += 2 * parameters
    prompt = max(world.max_prompt_tokens, method.max_prompt_tokens)
    cached = 2 * 2 * model.num_layers * model.num_kv_heads * model.head_size
    generation = 2 * BATCH_SIZE * (prompt + MAX_NEW_TOKENS) * cached
    inside = 30 * model.hidden_size + 8 * model.intermediate_size
    update = MICROBATCH_TOKENS * (4 * model.hidden_size * model.num_layers + inside)
    return (held + max(generation, update)) / GIGA


def _gpu(used: float) -> str:
    """The smallest that is enough."""
    fitting = (gpu for gpu, size in GPUS if used <= size)
    return next(fitting, "more than one GPU has, and a model is not sharded over GPUs")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
