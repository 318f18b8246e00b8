"""`sero play`: act by hand, ask the oracle, go back to a step."""

from __future__ import annotations

import pytest

from sero_core.config import load_config
from sero_core.play import play_game
from sero_core.types import SeroError
from tests.support.train import TINY

CONFIG = load_config(TINY)


def play(*lines: str) -> list[str]:
    said: list[str] = []
    play_game(CONFIG, "train", 0, iter(lines), said.append)
    return said


def test_following_the_oracle_wins_and_restore_goes_back() -> None:
    actions: list[str] = []
    for _ in range(20):
        answer = play(*actions, "!oracle")[-1]
        if not answer.startswith("oracle: "):
            break
        actions.append(answer.removeprefix("oracle: "))
        if "[won]" in play(*actions)[-1]:
            break
    assert "[won]" in play(*actions)[-1]
    start = play()[0].split("\n\n", 1)[1]
    restored = play(*actions, "!restore 0", "!oracle")
    assert restored[-2].endswith(start)
    assert restored[-1] == f"oracle: {actions[0]}"


def test_bad_commands_say_what_is_allowed() -> None:
    assert "!restore needs a step from 0 to 0, got '3'" in play("!restore 3")
    assert "unknown command '!x'" in play("!x")[-1]
    with pytest.raises(SeroError, match="there are 12"):
        play_game(CONFIG, "train", 12, iter(()), print)
