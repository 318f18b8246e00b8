"""Where the nouns of titles come from, and how often the built-in tagger agrees with spaCy."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest

from sero_core.envs.webshop.noun_tagger import NAME, _weights, features, nouns_of, split_title
from sero_core.envs.webshop.nouns import SPACY_MODELS, choose_nouns
from sero_core.envs.webshop.products import CatalogueError
from tests.support.webshop import golden_json


def test_agreement_with_spacy_on_the_golden_titles() -> None:
    """None of them, nor their brands, was in the training text."""
    titles = golden_json("title_nouns.json")["titles"]
    ours = {title: Counter(nouns_of(title)) for title in titles}
    both = sum((ours[title] & Counter(nouns)).total() for title, nouns in titles.items())
    num_ours = sum(found.total() for found in ours.values())
    num_spacy = sum(map(len, titles.values()))
    assert 2 * both / (num_ours + num_spacy) > 0.96


def test_sums_by_token_equal_sums_by_feature() -> None:
    weights = _weights()
    for title in golden_json("title_nouns.json")["titles"]:
        tokens = split_title(title)
        expected = [
            token.lower()
            for place, token in enumerate(tokens)
            if sum(weights.by_feature.get(n, 0) for n in features(tokens, place, weights.words)) > 0
        ]
        assert nouns_of(title) == expected


def test_tokens() -> None:
    assert split_title("Women's T-Shirt (2-Pack), 350g w/ Lid & Kids' Cup!") == [
        "Women", "'s", "T", "-", "Shirt", "(", "2", "-", "Pack", ")", ",", "350", "g", "w/",
        "Lid", "&", "Kids", "'", "Cup", "!",
    ]  # fmt: skip
    assert split_title("  ") == []


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "nouns.json"
    path.write_text(json.dumps({"titles": {"Red Cup": ["cup"]}}))
    tag, name = choose_nouns(path, "auto")
    assert tag(["Red Cup"]) == [["cup"]]
    assert name.startswith("file nouns.json ")
    with pytest.raises(CatalogueError, match="lacks 1 titles, as 'Blue Cup'"):
        tag(["Red Cup", "Blue Cup"])


@pytest.mark.parametrize("text", ["[]", '{"titles": 3}', '{"a": 3}', "{"])
def test_another_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "nouns.json"
    path.write_text(text)
    with pytest.raises(CatalogueError, match="expected"):
        choose_nouns(path, "auto")


def test_built_in() -> None:
    tag, name = choose_nouns(None, "builtin")
    assert name == NAME
    assert tag(["Soft Blanket for Dogs"]) == [["soft", "blanket", "dogs"]]


def test_an_unknown_tagger() -> None:
    with pytest.raises(CatalogueError, match="got 'brill', expected one of auto, spacy, builtin"):
        choose_nouns(None, "brill")


def test_spacy_or_a_clear_word() -> None:
    if any(importlib.util.find_spec(name) for name in SPACY_MODELS):
        tag, name = choose_nouns(None, "spacy")
        assert name.startswith("spacy 3.")
        titles = golden_json("title_nouns.json")["titles"]
        some = list(titles)[:40]
        assert tag(some) == [titles[title] for title in some]
    else:
        with pytest.raises(CatalogueError, match="is not installed"):
            choose_nouns(None, "spacy")
        assert choose_nouns(None, "auto")[1] == NAME
