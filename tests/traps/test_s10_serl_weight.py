"""S10: SERL's weight follows the sign of the advantage, is clipped, blended, on actions only."""

from __future__ import annotations

import numpy as np
import pytest

from sero_core.reweight.serl import mixing_at, sign_aware_weights

ALL = np.ones((1, 3), dtype=bool)


def weights(advantage: float, gap: float, mixing: float = 1.0) -> list[float]:
    """A~ / A of three tokens: the action span is the first two, the last is no response."""
    got = sign_aware_weights(
        np.full((1, 3), advantage),
        np.full((1, 3), -2.0),
        np.full((1, 3), -2.0 + gap),
        np.array([[True, True, False]]),
        np.array([[True, False, True]]),
        mixing=mixing,
        weight_clip=0.2,
    )
    return [float(value) for value in got.advantages_BL[0]]


@pytest.mark.parametrize(
    ("advantage", "gap", "expected"),
    [
        (2.0, 1.0, 2.4),  # rewarded, the teacher agrees: more
        (2.0, -1.0, 1.6),  # rewarded, the teacher doubts: less
        (-2.0, 1.0, -1.6),  # punished, the teacher likes it: less
        (-2.0, -1.0, -2.4),  # punished, the teacher agrees: more
        (2.0, 0.1, 2.0 * np.exp(0.1)),  # within the clip range the weight is the ratio
        (0.0, 5.0, 0.0),  # no advantage, no signal
    ],
)
def test_s10_sign_table(advantage: float, gap: float, expected: float) -> None:
    first, second, third = weights(advantage, gap)
    assert first == pytest.approx(expected)
    assert second == advantage, "a response token outside of the action span keeps its advantage"
    assert third == 0.0, "what is not trained on has none"


def test_s10_blending_decays_to_the_base_method() -> None:
    assert [mixing_at(0.5, 50, step) for step in (0, 10, 25, 50, 80)] == [0.5, 0.4, 0.25, 0.0, 0.0]
    assert mixing_at(0.5, 0, 1000) == 0.5
    assert weights(2.0, 1.0, mixing=0.4)[0] == pytest.approx(2.0 * (1 + 0.4 * 0.2))
    assert weights(2.0, 1.0, mixing=0.0)[0] == 2.0


def test_s10_three_tokens_of_the_reference() -> None:
    """lambda 0.5 at step 10 of 50, advantage 1.5: [1.5, 1.38, 1.62] (outside, disliked, liked)."""
    got = sign_aware_weights(
        np.full((1, 3), 1.5),
        np.array([[-1.0, -1.0, -3.0]]),
        np.array([[-3.0, -3.0, -1.0]]),
        ALL,
        np.array([[False, True, True]]),
        mixing=mixing_at(0.5, 50, 10),
        weight_clip=0.2,
    )
    assert got.advantages_BL[0] == pytest.approx([1.5, 1.38, 1.62])
