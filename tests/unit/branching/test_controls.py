"""Control studies: which weights the loss uses."""

from __future__ import annotations

from collections import Counter

import pytest

from sero_core.branching.controls import loss_weights, scheduled_depth
from sero_core.config import SeroConfig
from sero_core.sections_sero import DepthSchedule, ShuffledWeights

WEIGHTS = [1.0, 0.5, 0.25, 0.125]


def weights(
    control: ShuffledWeights | DepthSchedule | None,
    iteration: int = 1,
    seed: int = 0,
    name: str = "b",
) -> list[float]:
    return loss_weights(WEIGHTS, control, iteration=iteration, seed=seed, branch_id=name)


def test_without_a_control_the_loss_uses_the_reachability_weights() -> None:
    assert weights(None) == WEIGHTS


def test_shuffled_weights_are_a_permutation_drawn_from_seed_and_branch() -> None:
    first = Counter[float]()
    for seed in range(400):
        shuffled = weights(ShuffledWeights(), seed=seed)
        assert sorted(shuffled) == sorted(WEIGHTS)
        assert shuffled == weights(ShuffledWeights(), seed=seed)
        first[shuffled[0]] += 1
    assert set(first) == set(WEIGHTS)
    assert max(first.values()) < 140, "each weight comes first about equally often"
    assert any(
        weights(ShuffledWeights(), name=f"b{i}") != weights(ShuffledWeights()) for i in range(9)
    )


def test_the_depth_schedule_lets_one_more_step_in_at_a_time() -> None:
    control = DepthSchedule(first_depth=1, iterations_per_depth=10)
    assert [scheduled_depth(control, i) for i in (0, 1, 10, 11, 20, 21)] == [1, 1, 1, 2, 2, 3]
    assert weights(control, 1) == [1.0, 1.0, 0.0, 0.0]
    assert weights(control, 11) == [1.0, 1.0, 1.0, 0.0]
    assert weights(control, 1000) == [1.0] * 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"optimization": "own_optimizer", "oracle_coef": 0.5}, "use sero.lr_multiplier"),
        ({"lr_multiplier": 0.5}, "use sero.oracle_coef"),
        ({"optimization": "joint", "lr_multiplier": 2.0}, "use sero.oracle_coef"),
        ({"control": {"name": "shuffle"}}, "does not match any of the expected tags"),
    ],
)
def test_a_switch_without_effect_is_an_error(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SeroConfig.model_validate(fields)
