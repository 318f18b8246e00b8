"""Which goals are for training: two rules, and what leaks between their parts.

`original` goes by position in the shuffled order, as the baselines of arXiv 2207.01206 do: the
first 500 goals are `test`, the next 1,000 `eval`, the rest `train`. Where there are few goals, test
is at most a tenth of them and eval at most a fifth. Goals of one product fall on both sides.

`product` goes by the product: a number in [0, 1) from the hash of its asin; below 0.1 `test`, below
0.3 `eval`. A product is on the same side in every catalogue and for both kinds of goals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

SplitRule = Literal["original", "product"]
SplitName = Literal["test", "eval", "train"]
SPLIT_RULES: Final[tuple[SplitRule, ...]] = ("original", "product")
SPLIT_NAMES: Final[tuple[SplitName, ...]] = ("test", "eval", "train")
"""A split array holds places in this tuple."""

NUM_TEST: Final = 500
NUM_EVAL: Final = 1000
TEST_SHARE: Final = 0.1
EVAL_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Leak:
    """How much of a part is known from `train`: products and goals (of products) that are in both.

    A product counts where a goal of the part wants it.
    """

    rule: SplitRule
    part: SplitName
    num_goals: int
    num_goals_known: int
    num_products: int
    num_products_known: int

    def __str__(self) -> str:
        return (
            f"split {self.rule}: {self.part} has {self.num_goals} goals for {self.num_products} "
            f"products; {self.num_products_known} of these products and {self.num_goals_known} of "
            "these goals are for products that train wants too"
        )


def split_goals(rule: SplitRule, asins: Sequence[str]) -> NDArray[np.uint8]:
    """The part of every goal, from the asins of the goals in order: (num_goals,)."""
    if rule == "original":
        num_test = min(NUM_TEST, int(len(asins) * TEST_SHARE))
        num_eval = min(NUM_EVAL, int(len(asins) * EVAL_SHARE))
        parts = np.full(len(asins), SPLIT_NAMES.index("train"), np.uint8)
        parts[:num_test] = SPLIT_NAMES.index("test")
        parts[num_test : num_test + num_eval] = SPLIT_NAMES.index("eval")
        return parts
    known = {asin: SPLIT_NAMES.index(part_of_product(asin)) for asin in set(asins)}
    return np.array([known[asin] for asin in asins], np.uint8)


def part_of_product(asin: str) -> SplitName:
    """The part of a product under the rule `product`."""
    digest = blake2b(f"split {asin}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    number = int.from_bytes(digest, "big") / 2**64
    if number < TEST_SHARE:
        return "test"
    return "eval" if number < TEST_SHARE + EVAL_SHARE else "train"


def leaks(rule: SplitRule, parts: NDArray[np.uint8], products: NDArray[np.int32]) -> list[Leak]:
    """What `test` and `eval` share with `train`; `products[i]` is the product of goal i."""
    trained = np.unique(products[parts == SPLIT_NAMES.index("train")])
    found: list[Leak] = []
    for part in ("test", "eval"):
        wanted = products[parts == SPLIT_NAMES.index(part)]
        distinct = np.unique(wanted)
        found.append(
            Leak(
                rule,
                part,
                len(wanted),
                int(np.isin(wanted, trained).sum()),
                len(distinct),
                int(np.isin(distinct, trained).sum()),
            )
        )
    return found
