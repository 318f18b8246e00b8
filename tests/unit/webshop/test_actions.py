"""The grammar of typed actions, and which of them the engine acts on."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.envs.admissible import is_admissible
from sero_core.envs.webshop.actions import Action, click, is_typable, parse_action
from sero_core.types import Observation
from tests.support.webshop_env import golden_env, golden_task, random_action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("search[Red Shoes]", Action("search", "red shoes")),
        ("click[Buy Now]", Action("click", "buy now")),
        ("SEARCH[x]", Action("SEARCH", "x")),
        ("search[foo] blah", Action("search", "foo")),
        ("search[a]b]", Action("search", "a]b")),
        ("I will search[x]", Action("I will search", "x")),
        ("click[box [2 pcs]]", Action("click[box ", "2 pcs]")),
        ("click[a[]", Action("click", "a[")),
        ("click[a[b]", Action("click[a", "b")),
        ("search[x]\nclick[y]", Action("search", "x")),
        ("think\nsearch[x]", None),
        ("search[a\nb]", None),
        ("search[]", None),
        ("[x]", None),
        ("buy now", None),
        ("", None),
    ],
)
def test_grammar(text: str, action: Action | None) -> None:
    assert parse_action(text) == action


def test_typable() -> None:
    assert is_typable('16" x 16"')
    assert not is_typable("box [2 pcs]")
    assert not is_typable("2 inch\nwide")
    assert not is_typable("")
    assert not is_typable("İ")


@given(st.text(max_size=12))
def test_a_typable_text_is_what_a_click_names(text: str) -> None:
    if is_typable(text):
        assert parse_action(click(text)) == Action("click", text)


def test_admissible_means_that_the_engine_acts() -> None:
    """What is called inadmissible changes nothing; what the page offers is admissible."""
    rng = random.Random(5)
    env = golden_env()
    for goal in range(40):
        observation = env.reset(golden_task(goal))
        for _ in range(20):
            for action in observation.admissible:
                assert is_admissible("webshop", observation, action)
            action = random_action(observation, rng)
            before = env.state
            expected = is_admissible("webshop", observation, action)
            observation = env.step(action)
            if not expected:
                assert env.state is before, action


def test_other_environments_list_their_actions() -> None:
    observation = Observation("room", ("look",))
    assert is_admissible("alfworld", observation, "look")
    assert not is_admissible("alfworld", observation, "search[look]")
