"""Which visited states become branch roots (SERO, arXiv 2610.19397: a state the policy reached).

The abstract leaves the rule open; ours are named in docs/methods.md. All of them draw from steps
with at least one step after them: nothing is left to continue after the last one. An episode gives
at most one root, so the roots of a group stay spread over its episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from sero_core.sections_sero import RootRule
from sero_core.types import Episode, Group

Differs = Callable[[Episode, int], bool]
"""Whether the oracle, started at this step of the episode, would act otherwise than the policy."""

GIVEN = "given"
"""The rule of a root that was not drawn: someone named the step."""


@dataclass(frozen=True, slots=True)
class Root:
    """A visited state chosen as the start of a branch; `index` is the step's index.

    `rule` is what drew it. Where `disagree` or `first_divergence` found the oracle of the policy's
    opinion at every step, that is `uniform`.
    """

    episode: Episode
    index: int
    rule: str = GIVEN

    @property
    def branch_id(self) -> str:
        return f"{self.episode.episode_id}t{self.index}"


def choose_roots(group: Group, config: RootRule, differs: Differs, rng: Random) -> list[Root]:
    """Roots of one group, at most `per_group`, failed episodes first.

    `disagree`: uniform over the steps where `differs`; asked in random order until one does, which
    is the same distribution at a fraction of the oracle's work. `first_divergence`: the first such
    step. `uniform` and `failed_only`: uniform over all steps, of any or of failed episodes.
    `stratified`: uniform within a third of the episode, each third equally often. `start`: step 0
    of one episode, a plain demonstration (they all start in the same state).
    """
    if config.skip_solved_group and all(episode.is_won for episode in group.episodes):
        return []
    failed = [episode for episode in group.episodes if not episode.is_won]
    won = [episode for episode in group.episodes if episode.is_won]
    rng.shuffle(failed)
    rng.shuffle(won)
    episodes = failed if config.rule == "failed_only" else failed + won
    if config.rule == "start":
        return [Root(episode, 0, "start") for episode in episodes[:1]]
    thirds = rng.sample(range(3), 3)
    chosen = [episode for episode in episodes if len(episode.steps) > 1][: config.per_group]
    return [
        _root(episode, config.rule, thirds[place % 3], differs, rng)
        for place, episode in enumerate(chosen)
    ]


def _root(episode: Episode, rule: str, third: int, differs: Differs, rng: Random) -> Root:
    count = len(episode.steps) - 1
    if rule in ("disagree", "first_divergence"):
        order = rng.sample(range(count), count) if rule == "disagree" else range(count)
        for index in order:
            if differs(episode, index):
                return Root(episode, index, rule)
        rule = "uniform"
    if rule == "stratified":
        low = min(count * third // 3, count - 1)
        high = max(count * (third + 1) // 3, low + 1)
        return Root(episode, rng.randrange(low, high), rule)
    return Root(episode, rng.randrange(count), rule)
