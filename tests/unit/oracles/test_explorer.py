"""The explorer: knows only the texts, puts down what is in the way, tells dead ends."""

from __future__ import annotations

from typing import NoReturn

import pytest

from sero_core.oracles.belief import Belief
from sero_core.oracles.explorer import ExplorerOracle
from sero_core.types import DeadEnd, Environment, Observation, OracleError, Prefix, PrefixStep, Task

INTRO = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly "
    "around you, you see a bed 1, a desk 1, a drawer 10, a drawer 2, and a shelf 1.\n\n"
    "Your task is to: put some book on shelf."
)
GOING = ("go to bed 1", "go to desk 1", "go to drawer 10", "go to drawer 2", "go to shelf 1")
TASK = Task("train/game/trial", "alfworld", "train", "pick_and_place_simple", "/nowhere", "0" * 64)


class NoEnvironment:
    """Any look behind the texts is an error."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"the explorer used the environment: {name}")


def seen(text: str, *admissible: str) -> Observation:
    return Observation(text, tuple(sorted(admissible)))


def prefix_of(*observations: Observation) -> Prefix:
    steps = tuple(PrefixStep(observation, "unread") for observation in observations[:-1])
    env: Environment = NoEnvironment()  # type: ignore[assignment]
    return Prefix(TASK, steps, observations[-1], env)


def test_it_looks_where_books_usually_lie_then_takes_and_places() -> None:
    oracle = ExplorerOracle()()
    first = seen(INTRO, *GOING)
    oracle.start(prefix_of(first))
    assert oracle.act(first) == "go to bed 1"
    at_bed = seen(
        "You arrive at bed 1. On the bed 1, you see a pillow 1.", *GOING[1:], "examine bed 1"
    )
    assert oracle.act(at_bed) == "go to desk 1"
    at_desk = seen(
        "You arrive at desk 1. On the desk 1, you see a book 2, and a pen 1.",
        *GOING[:1],
        *GOING[2:],
        "examine desk 1",
        "take book 2 from desk 1",
        "take pen 1 from desk 1",
    )
    assert oracle.act(at_desk) == "take book 2 from desk 1"
    holding = seen("You pick up the book 2 from the desk 1.", *GOING, "move book 2 to desk 1")
    assert oracle.act(holding) == "go to shelf 1"
    at_shelf = seen(
        "You arrive at shelf 1. On the shelf 1, you see nothing.",
        *GOING[:4],
        "examine shelf 1",
        "move book 2 to shelf 1",
    )
    assert oracle.act(at_shelf) == "move book 2 to shelf 1"


def test_it_puts_down_what_the_policy_holds_and_remembers_what_it_saw() -> None:
    first = seen(INTRO, *GOING)
    at_desk = seen(
        "You arrive at desk 1. On the desk 1, you see a book 2, and a pillow 1.",
        "examine desk 1",
        "take book 2 from desk 1",
        "take pillow 1 from desk 1",
    )
    holding = seen("You pick up the pillow 1 from the desk 1.", "examine desk 1", *GOING)
    nonsense = seen("Nothing happens.", "examine desk 1", *GOING)
    oracle = ExplorerOracle()()
    oracle.start(prefix_of(first, at_desk, holding, nonsense))
    assert oracle.act(nonsense) == "go to bed 1"  # pillows do not fit on this desk
    at_bed = seen(
        "You arrive at bed 1. On the bed 1, you see nothing.",
        "examine bed 1",
        "move pillow 1 to bed 1",
        *GOING[1:],
    )
    assert oracle.act(at_bed) == "move pillow 1 to bed 1"
    free = seen(
        "You move the pillow 1 to the bed 1.",
        "examine bed 1",
        "take pillow 1 from bed 1",
        *GOING[1:],
    )
    assert oracle.act(free) == "go to desk 1"


def test_it_tells_a_dead_end() -> None:
    first = seen(INTRO, *GOING)
    holding = seen("You pick up the teddybear 1 from the bed 1.", "examine bed 1", *GOING[1:])
    oracle = ExplorerOracle()()
    oracle.start(prefix_of(first, holding))
    with pytest.raises(DeadEnd, match="holds teddybear 1, which fits nowhere"):
        oracle.act(holding)


def test_it_gives_up_with_a_reason_when_all_was_seen() -> None:
    text = INTRO.replace("a bed 1, a desk 1, a drawer 10, a drawer 2, and a shelf 1", "a bed 1")
    first = seen(text, "go to bed 1")
    at_bed = seen("You arrive at bed 1. On the bed 1, you see nothing.", "examine bed 1")
    oracle = ExplorerOracle()()
    oracle.start(prefix_of(first, at_bed))
    with pytest.raises(OracleError, match="looked into all 1 receptacles, no book left"):
        oracle.act(at_bed)


def test_a_prefix_without_its_beginning_is_refused() -> None:
    oracle = ExplorerOracle()()
    with pytest.raises(OracleError, match="no sentence"):
        oracle.start(prefix_of(seen("You arrive at bed 1.", "examine bed 1")))


def test_the_belief_reads_states_and_natural_order() -> None:
    belief = Belief()
    belief.begin(seen(INTRO, *GOING))
    assert belief.receptacles == ("bed 1", "desk 1", "drawer 2", "drawer 10", "shelf 1")
    belief.update(
        seen("You arrive at drawer 2. The drawer 2 is closed.", "open drawer 2", "examine drawer 2")
    )
    assert belief.closed == {"drawer 2"}
    assert belief.looked_into == set()
    belief.update(
        seen(
            "You open the drawer 2. The drawer 2 is open. In it, you see a mug 1.",
            "close drawer 2",
            "examine drawer 2",
            "take mug 1 from drawer 2",
        )
    )
    assert belief.opened == belief.looked_into == {"drawer 2"}
    belief.update(
        seen("You pick up the mug 1 from the drawer 2.", "examine drawer 2", "close drawer 2")
    )
    assert belief.held == "mug 1"
    assert belief.contents["drawer 2"] == set()
    belief.update(seen("You heat the mug 1 using the microwave 1."))
    belief.update(seen("You cool the mug 1 using the fridge 1."))
    assert belief.marks == {("cool", "mug 1")}
    belief.update(seen("This is a hot and clean egg 1."))
    assert belief.marks == {("cool", "mug 1"), ("hot", "egg 1"), ("clean", "egg 1")}


def test_two_targets_in_two_parents_end_in_one_of_them() -> None:
    """A half-trained policy leaves one object in each: do not walk to and fro between them."""
    text = INTRO.replace("put some book on shelf", "find two book and put them in drawer")
    walks = [*GOING]
    in_2 = "take book 1 from drawer 2"
    views = {
        "drawer 2": seen(
            "You arrive at drawer 2. The drawer 2 is open. In it, you see a book 1.",
            *walks, "close drawer 2", "examine drawer 2", in_2,
        ),
        "drawer 10": seen(
            "You arrive at drawer 10. The drawer 10 is open. In it, you see a book 2.",
            *walks, "close drawer 10", "examine drawer 10", "take book 2 from drawer 10",
        ),
    }  # fmt: skip
    for here, other in (("drawer 2", "drawer 10"), ("drawer 10", "drawer 2")):
        oracle = ExplorerOracle()()
        oracle.start(prefix_of(seen(text, *walks), views[other], views[here]))
        action = oracle.act(views[here])
        assert action.startswith("take book")
        assert action.endswith(here)
        at_bed = seen(
            "You arrive at bed 1. On the bed 1, you see nothing.", "examine bed 1", *walks
        )
        oracle.start(prefix_of(seen(text, *walks), views[other], views[here], at_bed))
        first = oracle.act(at_bed)
        assert first in ("go to drawer 2", "go to drawer 10")
        reached = views[first.removeprefix("go to ")]
        assert oracle.act(reached).startswith("take book")
