"""The update on a CUDA device: the same gradient as on the CPU, in every layout and attention.

pytest -m gpu tests/gpu
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch

from sero_core.batch import build_batch
from sero_core.forward import Passes, training_passes
from sero_core.policy import Policy, load_policy, save_policy
from sero_core.sections import OptimizerConfig
from tests.support.rows import FULL, distance, policy_gradient, run_update, sampled_rows
from tests.support.tiny import tiny_policy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Policy]:
    """The same model on the CPU and on the device."""
    folder = tmp_path_factory.mktemp("policy")
    save_policy(tiny_policy(scale=4.0, **SIZES), folder)
    on_cpu, on_gpu = load_policy(str(folder), device="cpu"), load_policy(str(folder))
    assert on_gpu.device.type == "cuda"
    return on_cpu, on_gpu


@pytest.mark.parametrize("is_packed", [False, True])
def test_gradient_equals_the_cpus(policies: tuple[Policy, Policy], is_packed: bool) -> None:
    on_cpu, on_gpu = policies
    batch = build_batch(sampled_rows(on_cpu))
    want = policy_gradient(on_cpu, batch, FULL, reference=on_cpu)
    got = policy_gradient(on_gpu, batch, FULL, Passes(4096, is_packed, 16), reference=on_gpu)
    assert distance({name: value.cpu() for name, value in got.items()}, want) < 1e-3


@pytest.mark.parametrize("attention", ["flex_attention", "flash_attention_2"])
def test_kernels_that_skip_blocks_give_the_packed_gradient(
    policies: tuple[Policy, Policy], attention: str
) -> None:
    if attention == "flash_attention_2" and importlib.util.find_spec("flash_attn") is None:
        pytest.skip("flash-attn is not installed")
    _, on_gpu = policies
    half = replace(on_gpu, dtype=torch.bfloat16)
    batch = build_batch(sampled_rows(on_gpu))
    passes = Passes(4096, True, 512)
    want = policy_gradient(half, batch, FULL, passes, reference=half)
    other = replace(half, train_attention=attention)
    got = policy_gradient(other, batch, FULL, passes, reference=other)
    assert distance(got, want) < 0.05


def test_the_default_layout_is_packed_and_the_first_ratio_is_one(
    policies: tuple[Policy, Policy],
) -> None:
    _, on_gpu = policies
    assert training_passes(on_gpu, OptimizerConfig()).is_packed
    metrics = run_update(on_gpu, build_batch(sampled_rows(on_gpu)))
    assert metrics["numerics/ratio_first_max"] < 1e-3
