"""Goals and prices: drawn once, from named seeds, in the original engine's order.

princeton-nlp/WebShop 64fa2a5 draws with Python's global generator: one uniform number per product
with a price range, then one upper price per instruction, then `random.seed(233)` and a shuffle.
Here two generators of their own give the same numbers: `draw_seed` for prices and upper prices
(restarted per kind of goal, so that prices do not depend on the kind), `shuffle_seed` for the
order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Literal, overload

import numpy as np
from numpy.typing import NDArray

from sero_core.envs.webshop.products import Instruction, Product

Options = tuple[tuple[str | None, str], ...]
"""(name, value) pairs; the name is None where a goal names values only."""
GoalKind = Literal["synthetic", "human"]
GOAL_KINDS: Final[tuple[GoalKind, ...]] = ("synthetic", "human")

DRAW_SEED: Final = 0
SHUFFLE_SEED: Final = 233
UPPER_PRICES: Final = tuple(10.0 * i for i in range(1, 100))
NO_UPPER_PRICE: Final = 1_000_000.0
NUM_UPPER_CANDIDATES: Final = 4


@dataclass(frozen=True, slots=True)
class Goal:
    """One shopping task. `index` is its place in the engine's shuffled order, `product` the place
    of its product in the catalogue.

    `options` are (name, value) pairs for synthetic goals; human goals have values only, their name
    is None. `price_upper` is 1,000,000 where the text names no price. `is_solvable` says whether
    some purchase scores 1.0 under the reward `original`, `is_solvable_fixed` under `fixed`;
    None where that was not computed (a shop in memory).
    """

    index: int
    kind: GoalKind
    asin: str
    product: int
    instruction_text: str
    attributes: tuple[str, ...]
    options: Options
    price_upper: float
    weight: float
    is_solvable: bool | None = None
    is_solvable_fixed: bool | None = None


@dataclass(frozen=True, slots=True)
class GoalSource:
    """An instruction with its drawn upper price: every goal of it shares these."""

    product: int
    instruction: Instruction
    price_upper: float
    weight: float


@dataclass(frozen=True, slots=True)
class DrawnGoals:
    """All goals of a kind in order: goal i is combination `combination_of[i]` of the options of
    source `source_of[i]` (int32 each).
    """

    sources: Sequence[GoalSource]
    source_of: NDArray[np.int32]
    combination_of: NDArray[np.int32]


class Goals(Sequence[Goal]):
    """Goals built on access from what was drawn; `flags` are bytes, bit 0 solvable under
    `original`, bit 1 under `fixed`.
    """

    def __init__(
        self,
        kind: GoalKind,
        drawn: DrawnGoals,
        products: Sequence[Product],
        flags: NDArray[np.uint8] | None = None,
    ) -> None:
        self.kind: GoalKind = kind
        self.drawn = drawn
        self.flags = flags
        self._products = products

    def __len__(self) -> int:
        return len(self.drawn.source_of)

    @overload
    def __getitem__(self, index: int) -> Goal: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Goal]: ...

    def __getitem__(self, index: int | slice) -> Goal | Sequence[Goal]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        source = self.drawn.sources[int(self.drawn.source_of[place])]
        product = self._products[source.product]
        wish = source.instruction
        pairs: Options = tuple((None, value) for value in wish.options or ())
        if wish.options is None:
            pairs = option_combination(product, int(self.drawn.combination_of[place]))
        flags = None if self.flags is None else int(self.flags[place])
        return Goal(
            index=place,
            kind=self.kind,
            asin=product.asin,
            product=source.product,
            instruction_text=instruction_text(wish, pairs, source.price_upper),
            attributes=wish.attributes,
            options=pairs,
            price_upper=source.price_upper,
            weight=source.weight,
            is_solvable=None if flags is None else bool(flags & 1),
            is_solvable_fixed=None if flags is None else bool(flags & 2),
        )


def draw_prices(pricings: Iterable[tuple[float, ...]], generator: random.Random) -> list[float]:
    """The price the reward uses, per product in file order: uniform within a range."""
    return [
        pricing[0] if len(pricing) == 1 else generator.uniform(pricing[0], pricing[1])
        for pricing in pricings
    ]


def draw_goals(
    instructions: Iterable[tuple[int, float, Instruction, int]],
    generator: random.Random,
    shuffle_seed: int = SHUFFLE_SEED,
) -> DrawnGoals:
    """Goals of one kind in the engine's final order.

    `instructions` in file order: (product, its drawn price, instruction, number of goals it makes).
    `generator` stands where `draw_prices` left it. An instruction that makes no goal (an empty
    option group) draws its upper price all the same.
    """
    drawn: list[tuple[int, Instruction, float, int]] = []
    uses: Counter[str] = Counter()
    for product, price, instruction, num_goals in instructions:
        drawn.append((product, instruction, draw_upper_price(price, generator), num_goals))
        for attribute in instruction.attributes:
            uses[attribute] += num_goals
    sources = [
        GoalSource(product, wish, upper, _weight(wish, uses, num_goals))
        for product, wish, upper, num_goals in drawn
    ]
    counts = np.array([num_goals for *_, num_goals in drawn], dtype=np.int64)
    order = list(range(int(counts.sum())))
    random.Random(shuffle_seed).shuffle(order)
    starts = np.concatenate(([0], np.cumsum(counts)))
    places = np.array(order, dtype=np.int64)
    source_of = np.searchsorted(starts, places, side="right") - 1
    return DrawnGoals(
        sources,
        source_of.astype(np.int32),
        (places - starts[source_of]).astype(np.int32),
    )


def draw_upper_price(price: float, generator: random.Random) -> float:
    """The larger of two prices out of the next four multiples of 10 below 1000; no draw and
    `NO_UPPER_PRICE` where fewer than two lie above `price`.
    """
    candidates = [upper for upper in UPPER_PRICES if upper > price][:NUM_UPPER_CANDIDATES]
    if len(candidates) < 2:
        return NO_UPPER_PRICE
    return max(generator.sample(candidates, 2))


def num_combinations(product: Product) -> int:
    """How many goals a synthetic instruction for this product makes."""
    return prod(len(values) for _, values in product.options)


def option_combination(product: Product, number: int) -> Options:
    """Combination `number` of the product's options: names sorted, the last one varies fastest."""
    chosen: list[tuple[str | None, str]] = []
    for name, values in sorted(product.options, reverse=True):
        number, place = divmod(number, len(values))
        chosen.append((name, values[place]))
    return tuple(reversed(chosen))


def instruction_text(wish: Instruction, pairs: Options, price_upper: float) -> str:
    """The sentence an agent reads. Human instructions name their options already."""
    text = wish.text
    if wish.options is None and pairs:
        text += " with " + ", and ".join(f"{name}: {value}" for name, value in pairs)
    if price_upper == NO_UPPER_PRICE:
        return text
    return f"{text}, and price lower than {price_upper:.2f} dollars"


def _weight(wish: Instruction, uses: Counter[str], num_goals: int) -> float:
    """Mean over the attributes of 1 / (goals with that attribute); 1 for human goals."""
    if wish.options is not None or num_goals == 0:
        return 1.0
    return sum(1.0 / uses[name] for name in wish.attributes) / len(wish.attributes)
