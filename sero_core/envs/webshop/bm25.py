"""Lucene's BM25 in numpy: k1 = 0.9, b = 0.4, one-byte lengths, float32, ties by asin.

Lucene 9 `BM25Similarity`: score(q, d) = sum over the terms of q of w - w / (1 + f(t, d) / n(d)),
w = qtf(t) * ln(1 + (N - df + 0.5) / (df + 0.5)), n(d) = k1 * (1 - b + b * L(d) / avgdl); every
figure but idf and avgdl is computed in float32. N counts documents that hold a term, avgdl is terms
per such document, L(d) is the length as its one-byte code decodes (`SmallFloat.intToByte4`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sero_core.envs.webshop.analysis import analyze

K1: Final = np.float32(0.9)
B: Final = np.float32(0.4)
MAX_QUERY_TERMS: Final = 1024
"""Lucene's limit on the different terms of a query."""


@dataclass(frozen=True, slots=True)
class Postings:
    """An inverted index. Documents are numbered by asin ascending, terms by their UTF-8 bytes.

    Term t occurs in `documents[starts[t]:starts[t + 1]]` (ascending), `saturations` holds
    1 + f(t, d) / n(d) next to it; `places[d]` is where document d stands in the catalogue.
    """

    terms: Sequence[bytes]
    starts: NDArray[np.int64]
    documents: NDArray[np.int32]
    saturations: NDArray[np.float32]
    places: NDArray[np.int32]
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
        ranked = self.rank(query, num_hits)[0]
        return tuple(self.postings.places[ranked].tolist())

    def rank(self, query: str, num_hits: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Documents of the best products and their scores, in the order of `search`."""
        known = self._known_terms(query)
        if not known:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        scores = self._scores(known)
        num_found = int(np.count_nonzero(scores))
        if num_found > num_hits:
            cut = len(scores) - num_hits
            candidates = np.flatnonzero(scores >= np.partition(scores, cut)[cut])
        else:
            candidates = np.flatnonzero(scores)
        order = np.argsort(-scores[candidates], kind="stable")[:num_hits]
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
        totals = np.bincount(documents, weights=gains, minlength=len(postings.places))
        return totals.astype(np.float32)


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
    order = sorted(range(len(asins)), key=lambda place: asins[place])
    numbers = np.empty(len(asins), np.int32)
    numbers[order] = np.arange(len(asins), dtype=np.int32)
    lengths = np.zeros(len(asins), np.int64)
    occurrences: dict[str, list[tuple[int, int]]] = {}
    for place, text in enumerate(texts):
        counts = Counter(analyze(text))
        lengths[numbers[place]] = counts.total()
        for term, count in counts.items():
            occurrences.setdefault(term, []).append((int(numbers[place]), count))
    keys = {term.encode("utf-8", "surrogatepass"): term for term in occurrences}
    terms = sorted(keys)
    lists = [sorted(occurrences[keys[key]]) for key in terms]
    pairs = np.array([pair for pairs in lists for pair in pairs], np.int32).reshape(-1, 2)
    return Postings(
        terms,
        np.cumsum([0, *(len(pairs) for pairs in lists)], dtype=np.int64),
        np.ascontiguousarray(pairs[:, 0]),
        saturations(pairs[:, 0], pairs[:, 1], lengths),
        np.array(order, np.int32),
        int(np.count_nonzero(lengths)),
    )


def saturations(
    documents: NDArray[np.int32], counts: NDArray[np.int32], lengths: NDArray[np.int64]
) -> NDArray[np.float32]:
    """1 + f / n(d) per posting, n(d) taken at the length that one byte can hold."""
    if not len(documents):
        return np.empty(0, np.float32)
    average = np.float32(int(lengths.sum()) / int(np.count_nonzero(lengths)))
    known, inverse = np.unique(lengths, return_inverse=True)
    quantized = np.array([quantize_length(int(length)) for length in known], np.float32)
    one = np.float32(1)
    norms = (one / (K1 * ((one - B) + B * quantized / average))).astype(np.float32)
    factors = norms[inverse][documents]
    return (one + counts.astype(np.float32) * factors).astype(np.float32)
