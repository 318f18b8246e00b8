"""What `sero branch --root` and `sero rescore` do: jobs on rows that a run has stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from sero_core.branching.roots import Root
from sero_core.branching.scoring import Question, Scorer
from sero_core.checkpoint import read_state
from sero_core.cli import exclusive
from sero_core.config import RunConfig
from sero_core.envs import load_tasks
from sero_core.metrics import branch_metrics
from sero_core.policy import weights_hash
from sero_core.prompts import PastStep, PromptBuilder, RenderedAction, task_text
from sero_core.reachability import WeightRule, reachability_weights
from sero_core.records import BranchPayload, EpisodePayload
from sero_core.seeds import derive_seed
from sero_core.setup import Trainer, build_trainer
from sero_core.sinks import open_log
from sero_core.stored import StoredRows, find_task, history, to_episode
from sero_core.types import IterationRecord, Observation, Rescore, SeroError, Task

Say = Callable[[str], None]
SPAN_RULES: frozenset[WeightRule] = frozenset({"lennorm", "seqprob"})
"""Rules that read the oracle action's own log-probabilities and nothing else."""


@dataclass(frozen=True, slots=True)
class GivenRoot:
    """A step of a stored episode; `branch_prefix` goes before the branch's id."""

    episode_id: str
    index: int
    branch_prefix: str = ""


def run_branch_from(
    config: RunConfig,
    out: Path,
    checkpoint: Path,
    rows: Path,
    root: GivenRoot,
    *,
    say: Say,
) -> None:
    """`sero branch --root EPISODE:STEP`: one branch from a given step, weighed by the checkpoint.

    Errors: `SeroError` without [sero], for a step or a task that is not there.
    """
    if config.sero is None:
        raise SeroError("this config has no [sero] section, so there is no oracle to branch with")
    stored = read_rows(rows).episode(root.episode_id)
    if not 0 <= root.index < len(stored.steps):
        raise SeroError(
            f"episode {root.episode_id} has steps 0 to {len(stored.steps) - 1}, got {root.index}"
        )
    iteration = read_state(checkpoint).iteration
    with exclusive(out):
        trainer = build_trainer(config, checkpoint, is_training=False)
        episode = to_episode(stored, find_task(_tasks(config, stored), stored))
        if trainer.brancher is None:
            raise SeroError("this config has no [sero] section")
        seed = derive_seed(config.seed, "branch", iteration)
        (branch,) = trainer.brancher.branch_from(
            [Root(episode, root.index)], seed=seed, iteration=iteration
        )
        branch = replace(
            branch,
            branch_id=f"{root.branch_prefix}{branch.branch_id}",
            is_trained=False,
            is_episode_won=stored.is_won,
        )
        metrics = branch_metrics([branch])
        _write(out, [IterationRecord(iteration, metrics, (), (branch,), (), None)])
        trainer.close()
    weights = " ".join(f"{step.weight:.2f}" for step in branch.steps)
    say(f"{branch.branch_id}  {branch.outcome}: {branch.reason}")
    say(f"D={branch.effective_depth:.2f}  w: {weights}")


def run_rescoring(
    config: RunConfig, out: Path, checkpoints: Sequence[Path], rows: Path, *, say: Say
) -> None:
    """`sero rescore`: the weights of stored branches under other checkpoints, each branch by its
    own rule. One record for each checkpoint, at its iteration.

    Errors: `SeroError` for rows of another task, or answers that cannot be rendered again.
    """
    stored = read_rows(rows)
    found = sorted((read_state(folder).iteration, folder) for folder in checkpoints)
    with exclusive(out):
        records: list[IterationRecord] = []
        for iteration, folder in found:
            trainer = build_trainer(config, folder, is_training=False)
            rescores = tuple(_rescore(trainer, stored, weights_hash(folder)))
            trainer.close()
            mean = sum(r.effective_depth for r in rescores) / len(rescores) if rescores else 0.0
            say(f"iteration {iteration}: {len(rescores)} branches, mean effective depth {mean:.2f}")
            metrics = {"rescore/branches": float(len(rescores)), "rescore/effective_depth": mean}
            records.append(IterationRecord(iteration, metrics, (), (), (), None, rescores=rescores))
        _write(out, records)


def read_rows(path: Path) -> StoredRows:
    """Errors: OSError; pydantic.ValidationError naming the field."""
    return StoredRows.model_validate_json(path.read_bytes())


def _rescore(trainer: Trainer, stored: StoredRows, policy_hash: str) -> list[Rescore]:
    """All branches of one rule are scored in one pass."""
    rescored: dict[str, Rescore] = {}
    for rule in dict.fromkeys(branch.weight_rule for branch in stored.branches):
        branches = [branch for branch in stored.branches if branch.weight_rule == rule]
        rescored |= _rescore_rule(trainer, stored, branches, policy_hash)
    return [rescored[branch.branch_id] for branch in stored.branches]


def _rescore_rule(
    trainer: Trainer, stored: StoredRows, branches: Sequence[BranchPayload], policy_hash: str
) -> dict[str, Rescore]:
    builder = trainer.collector.builder
    questions = [
        _question(builder, stored.episode(branch.episode_id), branch, depth)
        for branch in branches
        for depth in range(len(branch.steps))
    ]
    rule = cast(WeightRule, branches[0].weight_rule)
    config = trainer.config.sero
    scorer = Scorer(
        engine=trainer.collector.engine,
        builder=builder,
        rules=frozenset({rule}),
        probe=False,
        num_samples=config.reachability.num_samples if config is not None else 1,
        max_new_tokens=trainer.config.sampling.max_new_tokens,
    )
    answers = iter(scorer.score(questions, derive_seed(trainer.config.seed, "rescore", 0)))
    rescored: dict[str, Rescore] = {}
    for branch in branches:
        ingredients = [next(answers) for _ in branch.steps]
        weights = reachability_weights(ingredients, rule=rule, beta=branch.beta, tau=branch.tau)
        rescored[branch.branch_id] = Rescore(
            branch_id=branch.branch_id,
            weights_hash=policy_hash,
            weights=tuple(weight.weight for weight in weights),
            compatibilities=tuple(weight.compatibility for weight in weights),
            logprob_means=tuple(weight.logprob_mean for weight in weights),
        )
    return rescored


def _question(
    builder: PromptBuilder, episode: EpisodePayload, branch: BranchPayload, depth: int
) -> Question:
    """The prompt is built again from the stored texts; the answer's token ids are the stored ones.

    Errors: `SeroError` where the prompt is not the stored one, or a rule compares the answer with
    others and its thought was not the usual one.
    """
    step = branch.steps[depth]
    name = f"{branch.branch_id}k{depth}"
    past = [PastStep(text, action) for text, action in history(episode, branch, depth)]
    observation = Observation(step.observation, tuple(step.admissible))
    prompt = builder.build(task_text(episode.steps[0].observation), past, observation)
    if prompt.text != step.prompt:
        raise SeroError(f"{name}: the prompt is not what it was; was the prompt section changed?")
    opening = builder.opening()
    text = builder.render(step.action, opening)
    if branch.weight_rule not in SPAN_RULES and list(text.token_ids) != step.token_ids:
        raise SeroError(
            f"{name}: rule {branch.weight_rule} compares answers after the same thought, and that "
            "of this step was sampled; it cannot be scored again"
        )
    rendered = RenderedAction(
        text=text.text,
        token_ids=tuple(step.token_ids),
        tokens=tuple(step.tokens),
        scored=tuple(step.scored),
    )
    return Question(
        name=name,
        prompt_ids=prompt.ids,
        action=step.action,
        admissible=tuple(step.admissible),
        opening=opening,
        rendered=rendered,
    )


def _tasks(config: RunConfig, episode: EpisodePayload) -> tuple[Task, ...]:
    return load_tasks(config.env, episode.task.split)


def _write(out: Path, records: Sequence[IterationRecord]) -> None:
    sink = open_log(out, None)
    for record in records:
        sink.write(record)
    sink.close()
