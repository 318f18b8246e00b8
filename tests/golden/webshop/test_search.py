"""Ordered search results and token lists of the original's Lucene index."""

from __future__ import annotations

import pytest

from sero_core.envs.webshop.analysis import analyze
from sero_core.envs.webshop.bm25 import Bm25Index, build_postings
from sero_core.envs.webshop.products import index_text
from tests.support.webshop import golden_lines, golden_shop


@pytest.mark.parametrize(
    ("name", "number"), [("analysis.jsonl.gz", 520), ("analysis_random.jsonl.gz", 2500)]
)
def test_token_lists(name: str, number: int) -> None:
    rows = golden_lines(name)
    assert len(rows) == number
    for row in rows:
        assert analyze(row["text"]) == row["tokens"], ascii(row["text"])


def test_ordered_results() -> None:
    shop = golden_shop()
    rows = golden_lines("search.jsonl.gz")
    assert len(rows) == 420
    for row in rows:
        hits = [shop.product(place).asin for place in shop.search(row["query"])]
        assert hits == [asin for asin, _ in row["hits"]], ascii(row["query"])


def test_scores() -> None:
    """Anserini rounds to 4 decimals and lowers each further document of a tie by a millionth."""
    shop = golden_shop()
    products = [shop.product(place) for place in range(shop.num_products)]
    index = Bm25Index(
        build_postings([product.asin for product in products], map(index_text, products))
    )
    for row in golden_lines("search.jsonl.gz"):
        scores = index.rank(row["query"], 50)[1].tolist()
        assert scores == pytest.approx([score for _, score in row["hits"]], abs=1e-4)
