"""T1: the ids that the engine sampled are the ids that are trained on.

Text that is decoded and tokenised again comes back as other ids whenever the model did not split it
the way the tokenizer would.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from sero_core.batch import PolicyRow, build_batch, pack, pad
from sero_core.collect import Collector, Sampling
from sero_core.envs.alfworld.env import AlfworldEnv
from sero_core.envs.alfworld.generator import generate
from sero_core.envs.alfworld.tasks import list_tasks
from sero_core.envs.vector import EnvPool, LocalEnvs
from sero_core.policy import DEMO_POLICY, load_tokenizer
from sero_core.prompts import PromptBuilder
from sero_core.records import from_line, to_line
from sero_core.rows import policy_rows
from sero_core.sections import PromptConfig, RolloutConfig
from sero_core.types import Completion, IterationRecord

Ids = tuple[int, ...]


@dataclass
class Splitter:
    """Answers "look" spelt letter by letter, which the tokenizer would write as one or two ids."""

    tokenizer: PreTrainedTokenizerBase
    asked: list[Ids] = field(default_factory=list)
    answered: list[Ids] = field(default_factory=list)

    def generate(
        self,
        prompts: Sequence[Ids],
        *,
        temperature: float,
        max_new_tokens: int,
        seeds: Sequence[int],
    ) -> list[Completion]:
        done: list[Completion] = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            ids = self.spell(random.Random(seed).choice(["look", "inventory"]))
            text = str(self.tokenizer.decode(ids))
            self.asked.append(prompt)
            self.answered.append(ids)
            done.append(Completion(ids, tuple(-0.1 * i for i in range(len(ids))), text, False))
        return done

    def score(self, prompts: Sequence[Ids], completions: Sequence[Ids]) -> list[tuple[float, ...]]:
        raise AssertionError("nothing is scored here")

    def spell(self, word: str) -> Ids:
        pieces = ["<action>", *word, "</action>"]
        encoded = [self.tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in pieces]
        return tuple(i for ids in encoded for i in ids)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return load_tokenizer(DEMO_POLICY)


def test_t01_sampled_ids_reach_the_tensors_and_the_log(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    """Two tasks, two episodes each, three turns: every id of every turn, prompts too."""
    counts = {"train": 2, "valid_seen": 0, "valid_unseen": 0}
    generate(tmp_path / "games", seed=3, difficulty="small", counts=counts)
    engine = Splitter(tokenizer)
    collector = Collector(
        engine,
        LocalEnvs(EnvPool(AlfworldEnv)),
        PromptBuilder(PromptConfig(name="terse", history_length=8), tokenizer),
        RolloutConfig(max_steps=3),
    )
    tasks = list_tasks(tmp_path / "games", "train")
    groups = collector.collect(tasks, group_size=2, sampling=Sampling(1.0, 20), seed=0, prefix="i1")
    canonical = tuple(tokenizer("<action>look</action>", add_special_tokens=False)["input_ids"])
    assert engine.spell("look") != canonical, "a split that the tokenizer would not make"
    assert tokenizer.decode(engine.spell("look")) == "<action>look</action>"

    steps = [step for group in groups for episode in group.episodes for step in episode.steps]
    emitted = sorted(zip(engine.asked, engine.answered, strict=True))
    assert len(emitted) == 2 * 2 * 3
    assert sorted((s.prompt_ids, s.completion.token_ids) for s in steps) == emitted
    assert all(step.is_valid for step in steps), "the environment understood the spelt action"

    credits = [[[0.0] * len(e.steps) for e in group.episodes] for group in groups]
    rows = policy_rows(groups, credits, 1.0)  # pyright: ignore
    batch = build_batch(rows)
    got = [
        (tuple(ids[:prompt].tolist()), tuple(ids[prompt:].tolist()))
        for ids, prompt in zip(batch.input_ids, batch.prompt_lens, strict=True)
    ]
    assert sorted(got) == emitted
    for lay_out in (pad, pack):
        laid_out = lay_out(batch.input_ids, batch.prompt_lens, torch.device("cpu"))
        answers: list[list[int]] = [[] for _ in rows]
        for row, target in zip(laid_out.row_N.tolist(), laid_out.target_N.tolist(), strict=True):
            answers[row].append(target)
        assert [tuple(answer) for answer in answers] == [row.token_ids for row in rows]

    line = to_line(IterationRecord(1, {}, tuple(groups), (), (), None))
    logged = [step.token_ids for episode in from_line(line).episodes for step in episode.steps]
    assert [tuple(ids) for ids in logged] == [step.completion.token_ids for step in steps]


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 637), min_size=1, max_size=6),
            st.lists(st.integers(0, 637), min_size=1, max_size=6),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_t01_any_ids_are_trained_as_they_are(pairs: list[tuple[list[int], list[int]]]) -> None:
    """Ids that decode to nothing, to half a character, or to text with another split."""
    rows = [PolicyRow(tuple(p), tuple(a), 1.0, (-1.0,) * len(a)) for p, a in pairs]
    batch = build_batch(rows)
    assert [ids.tolist() for ids in batch.input_ids] == [p + a for p, a in pairs]
    for lay_out in (pad, pack):
        laid_out = lay_out(batch.input_ids, batch.prompt_lens, torch.device("cpu"))
        assert laid_out.target_N.tolist() == [token for _, answer in pairs for token in answer]
