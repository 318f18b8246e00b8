"""Generated catalogues: same seed same bytes, the original's format, a task that can be won."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from sero_core.envs.webshop.catalogue import generate_catalogue, generate_products
from sero_core.envs.webshop.catalogue_words import words
from sero_core.envs.webshop.noun_tagger import nouns_of
from sero_core.envs.webshop.products import CatalogueError
from sero_core.envs.webshop.purchase import winning_choice
from sero_core.envs.webshop.shop import Shop

FILES = ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("catalogue")
    generate_catalogue(folder, 400, seed=1)
    return folder


@pytest.fixture(scope="module")
def shop(catalogue: Path) -> Shop:
    rows, attributes, human = (json.loads((catalogue / name).read_text()) for name in FILES)
    return Shop.from_raw(
        rows, attributes, human, {row["name"]: nouns_of(row["name"]) for row in rows}
    )


def test_same_seed_same_bytes(catalogue: Path, tmp_path: Path) -> None:
    generate_catalogue(tmp_path, 400, seed=1)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (catalogue / name).read_bytes()
    generate_catalogue(tmp_path / "other", 400, seed=2)
    assert (tmp_path / "other" / FILES[0]).read_bytes() != (catalogue / FILES[0]).read_bytes()


def test_a_small_catalogue_is_the_start_of_a_large_one() -> None:
    assert list(generate_products(20, 7)) == list(islice(generate_products(100_000, 7), 20))


def test_nothing_is_overwritten(catalogue: Path) -> None:
    with pytest.raises(CatalogueError, match=r"holds items_shuffle\.json already"):
        generate_catalogue(catalogue, 5, seed=1)


def test_an_empty_catalogue_is_json(tmp_path: Path) -> None:
    generate_catalogue(tmp_path, 0, seed=1)
    assert [json.loads((tmp_path / name).read_text()) for name in FILES] == [[], {}, {}]


def test_asins_differ() -> None:
    assert len({product.asin for product in generate_products(5000, 3)}) == 5000
    assert all(len(product.asin) == 10 for product in generate_products(50, 3))


def test_products_are_varied(shop: Shop) -> None:
    products = [shop.product(place) for place in range(shop.num_products)]
    assert shop.num_products == 400
    assert len({product.title for product in products}) > 395
    assert len({product.query for product in products}) > 0.9 * len(words().types)
    groups = Counter(len(product.options) for product in products)
    assert min(groups[number] for number in (0, 1, 2)) > 40
    assert any(len(product.pricing) == 2 for product in products)
    assert any(" | " in value for p in products for _, values in p.options for value in values)
    assert any(product.price_tag == "$100.0" for product in products)


def test_instructions_are_varied(shop: Shop) -> None:
    for kind, least in (("synthetic", 150), ("human", 40)):
        goals = shop.goals(kind)
        sources = {goal.instruction_text.split(" with ")[0] for goal in goals}
        assert len(sources) > 0.5 * least
        assert len({goal.product for goal in goals}) > 0.8 * least
        openings = Counter(" ".join(goal.instruction_text.split()[:2]) for goal in goals)
        assert len(openings) >= 10


def test_goals_can_be_won(shop: Shop) -> None:
    """The rest are colors with a code, which the reward `original` misjudges."""
    for kind in ("synthetic", "human"):
        goals = shop.goals(kind)
        won = [winning_choice(shop, goal, "original") is not None for goal in goals]
        assert 0.9 < sum(won) / len(goals) <= 1.0
        assert all(winning_choice(shop, goal, "fixed") is not None for goal in goals)


def test_the_instruction_finds_products_that_fit(shop: Shop) -> None:
    """Most goals can be found by searching for their text: search is worth learning."""
    goals = list(shop.goals("synthetic"))[::10]
    found = sum(goal.product in shop.search(goal.instruction_text) for goal in goals)
    first = sum(goal.product in shop.search(goal.instruction_text)[:10] for goal in goals)
    assert found > 0.9 * len(goals)
    assert 0.4 * len(goals) < first < found
