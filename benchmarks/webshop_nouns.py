"""How often the built-in noun tagger and spaCy lead to the same thing on the golden catalogue.

    python benchmarks/webshop_nouns.py

Titles and brands of that catalogue were not in the tagger's training text. "type factor" is the
part of the reward that nouns decide, over pairs of a goal and a product that a search for its
instruction finds; "reward" is over the recorded purchases.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sero_core.envs.webshop.goals import GOAL_KINDS
from sero_core.envs.webshop.noun_tagger import nouns_of
from sero_core.envs.webshop.reward import score
from sero_core.envs.webshop.shop import Shop

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "webshop"


def main() -> None:
    spacy = json.loads((GOLDEN / "title_nouns.json").read_text("utf-8"))["titles"]
    reference = make_shop(spacy)
    taggers: dict[str, Callable[[str], list[str]]] = {
        "built-in tagger": nouns_of,
        "every word": lambda title: re.findall(r"\w+", title.lower()),
    }
    print(f"{'nouns':<18}{'precision':>10}{'recall':>8}{'type factor':>13}{'reward':>8}")
    for name, tagger in taggers.items():
        nouns = {title: tagger(title) for title in spacy}
        both = sum((Counter(nouns[title]) & Counter(spacy[title])).total() for title in spacy)
        precision = both / sum(map(len, nouns.values()))
        recall = both / sum(map(len, spacy.values()))
        shop = make_shop(nouns)
        factors, rewards = same_factors(reference, shop), same_rewards(shop)
        print(f"{name:<18}{precision:>10.1%}{recall:>8.1%}{factors:>13.1%}{rewards:>8.1%}")


def make_shop(nouns: dict[str, list[str]]) -> Shop:
    names = ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")
    rows, attributes, human = (json.loads((GOLDEN / name).read_text("utf-8")) for name in names)
    return Shop.from_raw(rows, attributes, human, nouns)


def same_factors(reference: Shop, shop: Shop) -> float:
    """Over every fourth synthetic goal, every human goal, and up to 50 products each."""
    same = total = 0
    for kind in GOAL_KINDS:
        for goal in list(reference.goals(kind))[:: 4 if kind == "synthetic" else 1]:
            for place in reference.search(goal.instruction_text):
                factors = {
                    score(each, goal, place, (), "original").type_factor
                    for each in (reference, shop)
                }
                same += len(factors) == 1
                total += 1
    return same / total


def same_rewards(shop: Shop) -> float:
    with gzip.open(GOLDEN / "rewards.jsonl.gz", "rt", encoding="utf-8", newline="\n") as file:
        rows = [json.loads(line) for line in file]
    same = 0
    for row in rows:
        goal = shop.goals(row["goals"])[row["goal"]]
        options = list(row["options"].items())
        place = shop.index_of(row["asin"])
        same += score(shop, goal, place, options, "original", row["price"]).reward == row["reward"]
    return same / len(rows)


if __name__ == "__main__":
    main()
