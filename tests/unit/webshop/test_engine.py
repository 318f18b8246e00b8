"""Rules beyond the recorded traces: nothing after the purchase, nothing raises, closed doors."""

from __future__ import annotations

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from sero_core.envs.webshop import engine, pages
from sero_core.envs.webshop.state import Errand, Rules, State
from tests.support.webshop import golden_shop

ODD = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(
    ["\x00", "\ud800", "<r>", "<a> x", "<c>", "<q>", "search_results", "item_page", "\u2028", "İ"]
)


def play(errand: Errand, *actions: str) -> State:
    state = errand.start()
    for action in actions:
        state, _ = engine.step(errand, state, action)
    return state


def errand(goal: int = 0, rules: Rules = Rules()) -> Errand:  # noqa: B008
    shop = golden_shop()
    return Errand(shop, shop.goals("synthetic")[goal], rules)


def test_nothing_happens_after_the_purchase() -> None:
    shopping = errand()
    asin = shopping.goal.asin.lower()
    bought = play(
        shopping,
        f"search[{golden_shop().product(shopping.goal.product).title}]",
        f"click[{asin}]",
        "click[buy now]",
    )
    assert bought.page == "done"
    assert pages.clickables(pages.build(shopping, bought)) == {}
    for action in ("search[basket]", "click[buy now]", "click[back to search]", "x"):
        assert engine.step(shopping, bought, action) == (bought, None)


def test_back_to_search_forgets_everything() -> None:
    shopping = errand()
    state = play(shopping, "search[storage basket]", "click[next >]")
    link = next(node for node in pages.build(shopping, state) if node.kind == "link")
    item, _ = engine.step(shopping, state, f"click[{link.text}]")
    assert item.visited == {link.place}
    again, _ = engine.step(shopping, item, "search[storage basket]")
    assert again.visited == {link.place}
    assert again.page_number == 1
    assert engine.step(shopping, item, "click[back to search]") == (shopping.start(), None)


def test_pages_beyond_the_last_are_empty_and_go_on() -> None:
    shopping = errand()
    state = play(shopping, "search[storage basket]", *["click[next >]"] * 9)
    assert state.page_number == 10
    assert list(pages.clickables(pages.build(shopping, state))) == [
        "back to search",
        "< prev",
        "next >",
    ]


def test_hidden_searches_are_closed() -> None:
    """<q>, <c>, <r> and <a> are words of an ordinary search, and <c> alone crashes nothing."""
    for query in ("<q> storage baskets", "<c> garden", "<r>", "<a> x", "<c>"):
        state = play(errand(), f"search[{query}]")
        assert state.page == "results"
        assert pages.hits(errand(), state) == golden_shop().search(query)
    opened = errand(rules=Rules(has_back_doors=True))
    state = play(opened, "search[<c>]")
    assert state == opened.start()
    assert len(pages.hits(opened, play(opened, "search[<c> garden]"))) == 88
    for query in ("<r>", "<a> x"):
        state = play(opened, f"search[{query}]")
        assert pages.hits(opened, state) == golden_shop().search(query)


def test_a_query_of_more_terms_than_lucene_takes() -> None:
    """The original raises TooManyClauses above 1,024 terms."""
    query = "basket " + " ".join(f"word{i}" for i in range(3000))
    state = play(errand(), f"search[{query}]")
    assert state.page == "results"
    assert pages.hits(errand(), state)


def test_an_option_that_is_called_like_a_button_acts_as_it() -> None:
    """The catalogue has such a product; its value "buy now" buys, "next >" is chosen."""
    shop = golden_shop()
    place = shop.index_of("B9PGYC1HAZ")
    state = State("synthetic", 0, page="item", query="x", product=place)
    shopping = errand()
    bought, parts = engine.step(shopping, state, "click[buy now]")
    assert bought.page == "done"
    assert parts is not None
    chosen, _ = engine.step(shopping, state, "click[next >]")
    assert chosen.options == (("style", "next >"),)
    sub, _ = engine.step(shopping, state, "click[description]")
    assert (sub.page, sub.sub_page) == ("sub", "description")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 677),
    st.sampled_from(["text", "text_rich"]),
    st.booleans(),
    st.lists(
        ODD
        | st.builds("{}[{}]".format, st.sampled_from(["search", "click", "x"]), ODD)
        | st.integers(0, 60),
        max_size=12,
    ),
)
def test_no_action_sequence_raises(
    goal: int, mode: str, has_back_doors: bool, actions: list[str | int]
) -> None:
    """Integers stand for the n-th thing that can be clicked."""
    shopping = errand(goal, Rules("original", mode, True, has_back_doors))  # type: ignore[arg-type]
    state = shopping.start()
    for action in actions:
        clickables = list(pages.clickables(pages.build(shopping, state))) or ["x"]
        text = (
            f"click[{clickables[action % len(clickables)]}]" if isinstance(action, int) else action
        )
        state, _ = engine.step(shopping, state, text)
        assert isinstance(pages.render(shopping, state, pages.build(shopping, state)), str)
        assert hash(state) == hash(pickle.loads(pickle.dumps(state)))
