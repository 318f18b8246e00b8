"""A WebShop run end to end with a real policy: rollouts, branches, update, evaluation, records."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from sero_core.checkpoint import TrainerState
from sero_core.config import ConfigError, RunConfig, load_config, parse_config
from sero_core.envs import make_env
from sero_core.envs.workers import WorkerEnvs
from sero_core.records import to_payload
from sero_core.rows import oracle_rows
from sero_core.setup import Trainer, build_trainer, training_sampling
from sero_core.train import iterate
from sero_core.types import Branch, Group, IterationRecord

TINY = Path(__file__).parents[2] / "support" / "tiny_webshop.toml"


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return build_trainer(load_config(TINY))


@pytest.fixture(scope="module")
def groups(trainer: Trainer) -> list[Group]:
    return trainer.collector.collect(
        trainer.tasks[:2],
        group_size=2,
        sampling=training_sampling(trainer.config),
        seed=11,
        prefix="i1",
    )


@pytest.fixture(scope="module")
def branches(trainer: Trainer, groups: list[Group]) -> list[Branch]:
    assert trainer.brancher is not None
    return trainer.brancher.branch(groups, seed=0, iteration=1)


def test_branches_are_won_and_say_whose_words_found_the_product(branches: list[Branch]) -> None:
    assert len(branches) == 4
    for branch in branches:
        assert branch.outcome == "won", branch.reason
        assert branch.reason.endswith(
            ("query from the instruction", "query from the title", "query from the description")
        )
        assert branch.root_hash == branch.restored_hash
        assert branch.steps[0].weight == 1.0
        assert branch.steps[-1].action == "click[buy now]"
        assert branch.steps[-1].reward == 1.0
        assert branch.is_trained


def test_a_search_is_scored_on_its_own_span(branches: list[Branch]) -> None:
    """Tags and the end of turn are not scored (S7); the text between them is the whole action."""
    searches = [s for b in branches for s in b.steps if s.action.startswith("search[")]
    assert searches
    for step in searches:
        text = "".join(t for t, scored in zip(step.tokens, step.scored, strict=True) if scored)
        assert text == step.action
    assert 0 < len(oracle_rows(branches)) <= sum(len(branch.steps) for branch in branches)


@pytest.mark.slow
def test_one_iteration(trainer: Trainer) -> None:
    state = TrainerState(1, trainer.config.group_hash(), trainer.config.seed, {})
    record, after = iterate(trainer, state)
    assert after.iteration == 2
    metrics = record.metrics
    assert 0 <= metrics["rollout/score_mean"] <= 1
    assert metrics["sero/branch_success"] == 1.0
    assert metrics["eval/test"] <= metrics["eval/test_score"] <= 1
    (evaluation,) = record.evaluations
    assert evaluation.panel == "test"
    assert {row.task_type for row in evaluation.results} >= {"all"}
    payload = to_payload(record)
    assert {episode.task.env for episode in payload.episodes} == {"webshop"}
    assert payload.episodes[0].task.task_id.startswith("webshop/train/synthetic/")


@pytest.mark.slow
def test_workers_give_the_same_records(trainer: Trainer, groups: list[Group]) -> None:
    make = partial(make_env, trainer.config.env)
    with closing(WorkerEnvs(make, 2, 60.0)) as envs:
        found = replace(trainer.collector, envs=envs).collect(
            trainer.tasks[:2],
            group_size=2,
            sampling=training_sampling(trainer.config),
            seed=11,
            prefix="i1",
        )
    assert _played(found) == _played(groups)


def test_config_of_webshop() -> None:
    config = load_config(TINY)
    assert config.env.name == "webshop"
    assert RunConfig.model_validate(config.model_dump()) == config
    assert RunConfig.model_validate({"env": {}}).env.name == "alfworld"
    base = {"env": {"name": "webshop"}}
    with pytest.raises(ConfigError, match="explorer does not play webshop; allowed: webshop"):
        parse_config(base | {"sero": {}}, "here")
    with pytest.raises(ConfigError, match="webshop has no split valid_seen to evaluate"):
        parse_config(base | {"evaluation": {"panels": ["valid_seen"]}}, "here")
    assert parse_config(base | {"evaluation": {"panels": ["eval"]}}, "here")
    with pytest.raises(ConfigError, match=r"env\.webshop\.games"):
        parse_config({"env": {"name": "webshop", "games": {}}}, "here")


def _played(groups: list[Group]) -> object:
    """Episodes without log-probabilities, whose last bits depend on the size of the batch."""
    payload = to_payload(IterationRecord(1, {}, tuple(groups), (), (), None))
    return [
        episode.model_copy(
            update={"steps": [step.model_copy(update={"logprobs": []}) for step in episode.steps]}
        )
        for episode in payload.episodes
    ]
