"""Lucene's arithmetic: lengths in one byte, ties, repeated query terms, documents without terms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.envs.webshop.bm25 import (
    BLOCK,
    Bm25Index,
    _best,
    build_postings,
    quantize_length,
)


def lucene_code(length: int) -> int:
    """SmallFloat.intToByte4, bit by bit."""
    if length < 24:
        return length
    rest = length - 24
    bits = rest.bit_length()
    if bits < 4:
        return 24 + rest
    shift = bits - 4
    return 24 + ((rest >> shift & 7) | (shift + 1) << 3)


def lucene_decode(code: int) -> int:
    if code < 24:
        return code
    rest = code - 24
    bits, shift = rest & 7, (rest >> 3) - 1
    return 24 + (bits if shift == -1 else (bits | 8) << shift)


@pytest.mark.parametrize("length", [*range(300), 1000, 1023, 1024, 123_456, 2**31 - 1])
def test_lengths_in_one_byte(length: int) -> None:
    assert quantize_length(length) == lucene_decode(lucene_code(length))


def test_lengths_below_forty_are_exact() -> None:
    assert [quantize_length(length) for length in (39, 40, 41, 42, 57, 100)] == [
        39, 40, 40, 42, 56, 96,
    ]  # fmt: skip


def index(texts: dict[str, str]) -> Bm25Index:
    return Bm25Index(build_postings(list(texts), texts.values()))


def test_score_by_hand() -> None:
    """Three documents of 1, 2 and 3 terms; df(cat) = 2; avgdl = 2."""
    found = index({"A": "cat", "B": "cat cat", "C": "dog dog dog"})
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    norm_a, norm_b = 0.9 * (0.6 + 0.4 * 1 / 2), 0.9 * (0.6 + 0.4 * 2 / 2)
    places, scores = found.rank("cat", 10)
    assert places.tolist() == [1, 0]
    assert scores.tolist() == pytest.approx([idf * 2 / (2 + norm_b), idf / (1 + norm_a)], rel=1e-6)
    assert scores.dtype == np.float32


def test_a_repeated_query_term_counts_again() -> None:
    found = index({"A": "cat", "B": "dog", "C": "fish"})
    once, twice = (found.rank(query, 1)[1][0] for query in ("cat", "cat cats"))
    assert twice == pytest.approx(2 * once, rel=1e-6)


def test_ties_go_by_asin_also_at_the_cut() -> None:
    asins = [f"B{number:03d}" for number in range(100)]
    shuffled = asins[50:] + asins[:50]
    found = index(dict.fromkeys(shuffled, "same words"))
    assert [shuffled[place] for place in found.search("words", 50)] == asins[:50]


@given(
    scores=st.lists(st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.5, 7.0]), max_size=4 * BLOCK),
    number=st.integers(1, 6),
)
def test_the_best_with_their_ties(scores: list[float], number: int) -> None:
    found = _best(np.array(scores, np.float32), number)
    lowest = sorted((score for score in scores if score > 0), reverse=True)[:number][-1:]
    assert found.tolist() == [
        place for place, score in enumerate(scores) if lowest and score >= lowest[0]
    ]


def test_documents_without_terms_do_not_count() -> None:
    """They change neither the number of documents nor the average length."""
    some = {"A": "cat", "B": "dog dog"}
    scores = index(some).rank("cat", 5)[1]
    assert index({**some, "C": "the of", "D": ""}).rank("cat", 5)[1].tolist() == scores.tolist()


def test_nothing_is_found() -> None:
    found = index({"A": "cat"})
    assert found.search("", 50) == found.search("the", 50) == found.search("zebra", 50) == ()
    assert index({"A": "", "B": "the"}).search("cat", 50) == ()


def test_more_terms_than_lucene_takes() -> None:
    found = index({"A": "cat", "B": "dog"})
    many = " ".join(f"w{number}" for number in range(1023))
    assert found.search(f"{many} cat dog", 50) == (0,)


def test_non_ascii_terms_are_found_by_bisection() -> None:
    found = index({"A": "zebra émile 🇫🇷", "B": "字 𝐱 café", "C": "apple"})
    assert found.search("🇫🇷", 5) == (0,)
    assert found.search("字", 5) == (1,)
    assert found.search("𝐱 zebra", 5) == (0, 1) or found.search("𝐱 zebra", 5) == (1, 0)
