"""S7: an oracle's action is written as the policy would have to answer, in the prompt it would see.

In another format (no think tags, another casing, another history) the weight measures the style and
not the action, and the loss teaches a format that the parser refuses.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from sero_core.branch import Brancher
from sero_core.prompts import PastStep, same_action, task_text
from sero_core.types import Branch, Episode
from tests.support.branches import ENVIRONMENTS, exact_brancher, groups_of, trainer_of, walks_of

each_environment = pytest.mark.parametrize("config", ENVIRONMENTS.values(), ids=ENVIRONMENTS)


@cache
def branches_of(
    config: Path, *, is_real: bool = False
) -> tuple[Brancher, list[Branch], dict[str, Episode]]:
    """Branches from random walks, or from episodes that a real policy played in the real loop."""
    groups = groups_of(config) if is_real else walks_of(config)
    brancher = exact_brancher(trainer_of(config), root={"rule": "uniform"})
    episodes = {episode.episode_id: episode for group in groups for episode in group.episodes}
    return brancher, brancher.branch(groups, seed=0, iteration=1), episodes


@each_environment
def test_s07_the_root_prompt_is_the_prompt_that_the_policy_saw(config: Path) -> None:
    _, branches, episodes = branches_of(config, is_real=True)
    assert any(branch.root_index > 0 for branch in branches)
    for branch in branches:
        root = episodes[branch.episode_id].steps[branch.root_index]
        assert branch.steps[0].prompt_ids == root.prompt_ids
        assert branch.steps[0].observation == root.observation


@each_environment
def test_s07_deeper_prompts_are_those_of_a_policy_that_had_acted_like_this(config: Path) -> None:
    brancher, branches, episodes = branches_of(config)
    for branch in branches:
        episode = episodes[branch.episode_id]
        goal = task_text(episode.steps[0].observation.text)
        past = [PastStep(s.observation.text, s.action) for s in episode.steps[: branch.root_index]]
        for step in branch.steps:
            expected = brancher.builder.build(goal, past, step.observation)
            assert (step.prompt_ids, step.prompt) == (expected.ids, expected.text)
            past.append(PastStep(step.observation.text, step.action))


@each_environment
@pytest.mark.parametrize("style", ["terse", "standard"])
def test_s07_the_answer_is_valid_and_means_the_action(config: Path, style: str) -> None:
    """By the parser of the rollout; and exactly the action's own text is scored."""
    brancher, branches, _ = branches_of(config)
    settings = trainer_of(config).config.prompt.model_copy(update={"name": style})
    builder = type(brancher.builder)(settings, trainer_of(config).policy.tokenizer)
    actions = {step.action for branch in branches for step in branch.steps}
    assert len(actions) > 4
    for action in actions:
        rendered = builder.render(action)
        parsed = builder.parse(builder.decode(rendered.token_ids[:-1]))
        assert parsed.is_valid
        assert same_action(parsed.action, action)
        assert rendered.token_ids[-1] in trainer_of(config).policy.stop_ids
        pieces = zip(rendered.tokens, rendered.scored, strict=True)
        assert "".join(piece for piece, kept in pieces if kept) == action


@each_environment
def test_s07_the_stored_answer_is_the_rendered_one(config: Path) -> None:
    brancher, branches, _ = branches_of(config)
    for branch in branches:
        for step in branch.steps:
            rendered = brancher.builder.render(step.action)
            assert (step.token_ids, step.scored) == (rendered.token_ids, rendered.scored)
