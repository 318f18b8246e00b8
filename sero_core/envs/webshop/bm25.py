"""Lucene's BM25 in numpy: k1 = 0.9, b = 0.4, one-byte lengths, float32, ties by asin.

Lucene 9 `BM25Similarity`: score(q, d) = sum over the terms of q of w - w / (1 + f(t, d) / n(d)),
w = qtf(t) * ln(1 + (N - df + 0.5) / (df + 0.5)), n(d) = k1 * (1 - b + b * L(d) / avgdl); every
figure but idf and avgdl is computed in float32. N counts documents that hold a term, avgdl is terms
per such document, L(d) is the length as its one-byte code decodes (`SmallFloat.intToByte4`).
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sero_core.envs.webshop.analysis import analyze, term_of
from sero_core.envs.webshop.word_break import words

K1: Final = np.float32(0.9)
B: Final = np.float32(0.4)
BLOCK: Final = 64
"""Scores that are looked at together when the best are sought."""
MAX_QUERY_TERMS: Final = 1024
"""Lucene's limit on the different terms of a query."""


@dataclass(frozen=True, slots=True)
class Postings:
    """An inverted index. A document is a product by its place in the catalogue, terms are sorted
    by their UTF-8 bytes.

    Term t occurs in `documents[starts[t]:starts[t + 1]]` (ascending), `saturations` holds
    1 + f(t, d) / n(d) next to it; `ranks[d]` is the place of d among all asins sorted.
    """

    terms: Sequence[bytes]
    starts: NDArray[np.int64]
    documents: NDArray[np.int32]
    saturations: NDArray[np.float32]
    ranks: NDArray[np.int32]
    num_with_terms: int


class Bm25Index:
    """Search over `Postings`, in memory or mapped from disk."""

    def __init__(self, postings: Postings) -> None:
        self.postings = postings
        self._numbers: dict[str, int] = {}

    def search(self, query: str, num_hits: int) -> tuple[int, ...]:
        """Places of the best products, best first, ties by asin ascending; only products that
        hold a term of the query. A query of more than 1024 different terms, which Lucene refuses,
        is cut to its first 1024.
        """
        return tuple(self.rank(query, num_hits)[0].tolist())

    def rank(self, query: str, num_hits: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Places of the best products and their scores, in the order of `search`."""
        known = self._known_terms(query)
        if not known:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        scores = self._scores(known)
        candidates = _best(scores, num_hits)
        order = np.lexsort((self.postings.ranks[candidates], -scores[candidates]))[:num_hits]
        best = candidates[order]
        return best, scores[best]

    def _known_terms(self, query: str) -> list[tuple[int, int]]:
        """(number, times in the query) of the query's terms that some document holds."""
        known: list[tuple[int, int]] = []
        counts = Counter(analyze(query))
        for term, count in list(counts.items())[:MAX_QUERY_TERMS]:
            number = self._numbers.get(term)
            if number is None:
                number = self._look_up(term)
            if number >= 0:
                known.append((number, count))
        return known

    def _look_up(self, term: str) -> int:
        key = term.encode("utf-8", "surrogatepass")
        place = bisect_left(self.postings.terms, key)
        is_known = place < len(self.postings.terms) and self.postings.terms[place] == key
        if len(self._numbers) >= 1 << 14:
            self._numbers.clear()
        self._numbers[term] = place if is_known else -1
        return self._numbers[term]

    def _scores(self, known: list[tuple[int, int]]) -> NDArray[np.float32]:
        """Every document's score, (num_documents,)."""
        postings = self.postings
        bounds = [(int(postings.starts[t]), int(postings.starts[t + 1])) for t, _ in known]
        weights = np.array(
            [
                np.float32(count) * idf(end - start, postings.num_with_terms)
                for (_, count), (start, end) in zip(known, bounds, strict=True)
            ],
            dtype=np.float32,
        )
        weight = np.repeat(weights, [end - start for start, end in bounds])
        saturation = np.concatenate([postings.saturations[start:end] for start, end in bounds])
        documents = np.concatenate([postings.documents[start:end] for start, end in bounds])
        gains = weight - weight / saturation
        totals = np.bincount(documents, weights=gains, minlength=len(postings.ranks))
        return totals.astype(np.float32)


def _best(scores: NDArray[np.float32], number: int) -> NDArray[np.int64]:
    """Where the `number` highest positive scores are, with all that tie with the lowest of them."""
    bound = np.nextafter(np.float32(0), np.float32(1))
    num_blocks = len(scores) // BLOCK
    if num_blocks > number:
        # so many blocks have a score as high as this, so the bound cannot be lower
        highest = scores[: num_blocks * BLOCK].reshape(num_blocks, BLOCK).max(axis=1)
        bound = max(bound, np.partition(highest, num_blocks - number)[num_blocks - number])
    places = np.flatnonzero(scores >= bound)
    if len(places) <= number:
        return places
    found = scores[places]
    cut = len(found) - number
    return places[found >= np.partition(found, cut)[cut]]


def idf(num_documents: int, num_with_terms: int) -> np.float32:
    """ln(1 + (N - df + 0.5) / (df + 0.5)), in double and then rounded."""
    return np.float32(math.log(1 + (num_with_terms - num_documents + 0.5) / (num_documents + 0.5)))


def quantize_length(length: int) -> int:
    """The length that Lucene's one-byte code of `length` stands for: exact below 40, above that the
    four leading bits of length - 24 (`SmallFloat.intToByte4`, `byte4ToInt`).
    """
    if length < 40:
        return length
    shift = (length - 24).bit_length() - 4
    return 24 + ((length - 24) >> shift << shift)


def build_postings(asins: Sequence[str], texts: Iterable[str]) -> Postings:
    """An index in memory over documents in catalogue order."""
    counts = count_terms(texts)
    return Postings(
        counts.terms,
        counts.starts,
        counts.documents,
        saturations(counts.counts, inverse_norms(counts.lengths)[counts.documents]),
        asin_ranks(asins),
        int(np.count_nonzero(counts.lengths)),
    )


@dataclass(frozen=True, slots=True)
class TermCounts:
    """Which terms occur how often in which documents: as `Postings`, with plain `counts`."""

    terms: list[bytes]
    starts: NDArray[np.int64]
    documents: NDArray[np.int32]
    counts: NDArray[np.int32]
    lengths: NDArray[np.int64]


def count_terms(texts: Iterable[str]) -> TermCounts:
    """Terms by document; documents are numbered as they come."""
    numbers = _WordNumbers()
    lengths: list[int] = []
    occurrences = array("q")
    for document, text in enumerate(texts):
        terms = [number for word in words(text) if (number := numbers[word]) >= 0]
        lengths.append(len(terms))
        occurrences.extend(number << 32 | document for number in terms)
    keys, counts = np.unique(np.asarray(occurrences, np.int64), return_counts=True)
    encoded = [term.encode("utf-8", "surrogatepass") for term in numbers.terms]
    by_bytes = sorted(range(len(encoded)), key=encoded.__getitem__)
    new_number = np.empty(len(encoded), np.int64)
    new_number[by_bytes] = np.arange(len(encoded))
    owners = new_number[keys >> 32]
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(len(encoded) + 1))
    return TermCounts(
        [encoded[number] for number in by_bytes],
        starts.astype(np.int64),
        (keys & 0xFFFFFFFF)[order].astype(np.int32),
        counts[order].astype(np.int32),
        np.array(lengths, np.int64),
    )


class _WordNumbers(dict[str, int]):
    """Word as spelled to the number of its term, -1 for stop words."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        term = term_of(word)
        number = self.terms.setdefault(term, len(self.terms)) if term else -1
        self[word] = number
        return number


def asin_ranks(asins: Sequence[str]) -> NDArray[np.int32]:
    """The place of each asin among all sorted."""
    ranks = np.empty(len(asins), np.int32)
    ranks[sorted(range(len(asins)), key=asins.__getitem__)] = np.arange(len(asins), dtype=np.int32)
    return ranks


def inverse_norms(lengths: NDArray[np.int64]) -> NDArray[np.float32]:
    """1 / n(d) per document, its length taken as one byte can hold it."""
    num_with_terms = int(np.count_nonzero(lengths))
    average = np.float32(int(lengths.sum()) / num_with_terms if num_with_terms else 1)
    known, inverse = np.unique(lengths, return_inverse=True)
    quantized = np.array([quantize_length(int(length)) for length in known], np.float32)
    one = np.float32(1)
    norms = one / (K1 * ((one - B) + B * quantized / average))
    return norms.astype(np.float32)[inverse]


def saturations(counts: NDArray[np.int32], norms: NDArray[np.float32]) -> NDArray[np.float32]:
    """1 + f / n(d) per posting, from f and 1 / n(d)."""
    return (np.float32(1) + counts.astype(np.float32) * norms).astype(np.float32)
