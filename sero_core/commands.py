"""What the commands of `sero_core.cli` do. Each takes a config and an output folder and says
lines.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import stdev
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError

from sero_core.checkpoint import (
    TrainerState,
    check_same_run,
    complete_checkpoints,
    discard_unfinished,
    read_state,
    restore_optimizers,
)
from sero_core.cli import EXIT_DISK_FULL, EXIT_STOPPED, exclusive, stop_on_signal
from sero_core.config import RunConfig, WebShopEnv, apply_override
from sero_core.envs import generated_games, load_tasks
from sero_core.envs.alfworld.cache import compile_directory
from sero_core.envs.alfworld.generator import DIFFICULTIES, Difficulty, generate
from sero_core.evaluate import rates_by_seed
from sero_core.metrics import branch_metrics, evaluation_metrics, rollout_metrics
from sero_core.policy import save_policy
from sero_core.protocol import departures
from sero_core.provenance import CODE_FILE, current_code
from sero_core.records import to_payload
from sero_core.report import row_of, rows_of_run, table
from sero_core.seeds import derive_seed
from sero_core.setup import Trainer, build_trainer, training_sampling
from sero_core.sinks import open_log
from sero_core.sinks.space import SpaceGuard, disk_full, is_disk_full
from sero_core.train import StopRequested, evaluate_panels, sample_tasks, train
from sero_core.types import IterationRecord, SeroError, Task
from sero_core.types_evaluation import Evaluation
from sero_core.warmstart import WarmstartConfig, save_card, warmstart

Say = Callable[[str], None]
CHECKPOINT_IS_WRITTEN = "a checkpoint of the last finished iteration is written"


def run_training(config: RunConfig, out: Path, *, resume: bool, say: Say) -> int:
    """`sero train`. Returns the exit code: 0 finished, 75 stopped after a checkpoint, 74 stopped
    because the disk is full.

    Errors: `SeroError` for an unusable config, a damaged checkpoint or a folder in use.
    """
    stop: list[int] = []

    def check_stop() -> None:
        if stop:
            raise StopRequested

    with exclusive(out), stop_on_signal(stop):
        state = _state_to_resume(config, out) if resume else None
        folder = None if state is None else complete_checkpoints(out)[-1][1]
        trainer = build_trainer(config, folder, check_stop)
        if state is not None and folder is not None:
            restore_optimizers(folder, trainer.optimizers)
            say(f"resuming after iteration {state.iteration}")
        (out / "config.json").write_text(config.model_dump_json(indent=1) + "\n")
        (out / CODE_FILE).write_text(json.dumps(current_code().to_json(), indent=1) + "\n")
        for field, usual, got in departures(config):
            say(f"{field} is {got}, where {config.estimator.name} usually has {usual}")
        sink = open_log(out, _resume_point(out, resume, state))
        guard = SpaceGuard(out, sink, lambda: stop.append(EXIT_DISK_FULL))
        sinks = [sink, guard]
        try:
            train(trainer, out, sinks, state, lambda record: say(summary(record, config)))
        except StopRequested:
            why = "on request" if guard.shortage is None else f"because {guard.shortage}"
            say_if_possible(say, f"stopped {why}; {CHECKPOINT_IS_WRITTEN}")
            return EXIT_STOPPED if guard.shortage is None else EXIT_DISK_FULL
        except (OSError, SafetensorError) as error:
            if not is_disk_full(error):
                raise
            discard_unfinished(out)
            say_if_possible(say, f"stopped because {disk_full(out)}; the last checkpoint is whole")
            return EXIT_DISK_FULL
        finally:
            sink.close()
            trainer.close()
    say("finished")
    return 0


def say_if_possible(say: Say, line: str) -> None:
    """Say it, unless stdout is a file on the full disk: the exit code says it, too.

    What Python could not flush it would try again at its end, and exit with 120 instead.
    """
    try:
        say(line)
    except OSError:
        with open(os.devnull, "w") as nowhere:
            for stream in (sys.stdout, sys.stderr):
                os.dup2(nowhere.fileno(), stream.fileno())


def run_evaluation(
    config: RunConfig, out: Path, checkpoint: Path | None, *, is_markdown: bool, say: Say
) -> None:
    """`sero eval`: the config's protocol and baseline under one policy, one record in
    `<out>/records.jsonl`; says the counts with intervals, then the papers' layout.
    """
    with exclusive(out):
        trainer = build_trainer(config, checkpoint, is_training=False)
        evaluations = evaluate_panels(trainer, 0)
        metrics = evaluation_metrics(evaluations)
        record = IterationRecord(0, metrics, (), (), evaluations, None)
        _write_once(out, record)
        trainer.close()
    for evaluation in evaluations:
        for line in evaluation_table(evaluation):
            say(line)
    payload = to_payload(record)
    say("")
    for line in table(
        [row_of(config.name, e) for e in payload.evaluations], is_markdown=is_markdown
    ):
        say(line)


def run_report(folders: Sequence[Path], *, is_markdown: bool, say: Say) -> None:
    """`sero report`: runs in the papers' layout, from their logs.

    Errors: `SeroError` for a folder without a log or an evaluation.
    """
    rows = [row for folder in folders for row in rows_of_run(folder)]
    for line in table(rows, is_markdown=is_markdown):
        say(line)


def run_branching(config: RunConfig, out: Path, checkpoint: Path | None, *, say: Say) -> None:
    """`sero branch`: one iteration's rollouts and branches, without any update.

    Errors: `SeroError` when the config has no [sero] section.
    """
    if config.sero is None:
        raise SeroError("this config has no [sero] section, so there is no oracle to branch with")
    with exclusive(out):
        trainer = build_trainer(config, checkpoint, is_training=False)
        record = _branch_once(trainer)
        _write_once(out, record)
        trainer.close()
    for item in record.branches:
        weights = " ".join(f"{step.weight:.2f}" for step in item.steps)
        say(
            f"{item.branch_id:<12} {item.task.task_type:<32} {item.outcome:<12} "
            f"D={item.effective_depth:.2f}  w: {weights}"
        )
    metrics = record.metrics
    say(
        f"{len(record.branches)} branches, {metrics.get('sero/branch_success', 0.0):.0%} won, "
        f"mean effective depth {metrics.get('sero/effective_depth', 0.0):.2f}, "
        f"{metrics['sero/restore_mismatches']:.0f} restore mismatches"
    )


def run_warmstart(config: RunConfig, recipe: tuple[str, ...], out: Path, *, say: Say) -> None:
    """`sero warmstart`: make the demo policy and say how well it does on the config's panels."""
    fields: dict[str, Any] = {}
    for override in recipe:
        apply_override(fields, override)
    try:
        parsed = WarmstartConfig.model_validate(fields)
    except ValidationError as error:
        raise SeroError(f"warmstart recipe: {error}") from None
    if out.exists() and any(out.iterdir()):
        raise SeroError(f"{out} is not empty; choose another --out folder")
    started = time.monotonic()
    games = [_warmstart_games(config, parsed, stage) for stage in range(len(parsed.stages))]
    policy = warmstart(games, config.prompt, parsed, say, config.env)
    save_policy(policy, out)
    say(f"trained in {time.monotonic() - started:.0f} s, saved to {out}")
    trainer = build_trainer(config, out, is_training=False)
    lines = [line for item in evaluate_panels(trainer, 0) for line in evaluation_table(item)]
    for line in lines:
        say(line)
    save_card(out, parsed, lines)


def _warmstart_games(config: RunConfig, recipe: WarmstartConfig, stage: int) -> tuple[Task, ...]:
    """Training tasks of a stage: other seeds than the run's own, of the split train only (WebShop:
    goals that can be reached).
    """
    wanted = recipe.stages[stage].num_games
    if isinstance(config.env, WebShopEnv):
        catalogue = config.env.catalogue.model_copy(
            update={
                "seed": config.env.catalogue.seed + 1_000 + stage,
                "num_products": max(200, wanted),
            }
        )
        changes = {"catalogue": catalogue, "data_root": "", "is_solvable_only": True}
        return load_tasks(config.env.model_copy(update=changes), "train")[:wanted]
    games = config.env.games.model_copy(
        update={
            "seed": config.env.games.seed + 1_000 + stage,
            "num_train": wanted,
            "num_valid_seen": 1,
            "num_valid_unseen": 1,
        }
    )
    env = config.env.model_copy(update={"games": games, "data_root": str(generated_games(games))})
    return load_tasks(env, "train")


def generate_games(
    out: Path, seed: int, difficulty: str, counts: dict[str, int], *, say: Say
) -> None:
    """`sero data generate`. Errors: `SeroError` for an unknown difficulty or a folder with
    games.
    """
    chosen: Difficulty | None = next((name for name in DIFFICULTIES if name == difficulty), None)
    if chosen is None:
        raise SeroError(f"difficulty is {difficulty!r}, allowed: {', '.join(DIFFICULTIES)}")
    try:
        report = generate(out, seed=seed, difficulty=chosen, counts=counts)
    except FileExistsError as error:
        raise SeroError(str(error)) from None
    for split, number in report.num_games.items():
        say(f"{split}: {number} games {report.num_by_task_type[split]}")
    say(f"written to {report.root}, mean plan {report.mean_plan_length:.1f} steps")


def compile_folder(folder: Path, *, say: Say) -> None:
    """`sero data compile`: fill the cache of compiled games."""
    from rich.progress import Progress

    with Progress() as progress:
        bar = progress.add_task("compiling", total=None)

        def follow(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        try:
            report = compile_directory(folder, progress=follow)
        except FileNotFoundError as error:
            raise SeroError(str(error)) from None
    for path, reason in report.failures:
        say(f"not compiled: {path}: {reason}")
    say(
        f"{report.num_compiled} games compiled, {report.num_cached} were in the cache, "
        f"{len(report.failures)} are played by the reference engine"
    )


def summary(record: IterationRecord, config: RunConfig) -> str:
    """One line a person can read while a run trains."""
    metrics = record.metrics
    parts = [f"iteration {record.iteration}/{config.num_iterations}"]
    shown = {
        "rollout/success": "success {:.3f}",
        "sero/branches": "branches {:.0f}",
        "sero/effective_depth": "effective depth {:.2f}",
        "train/loss": "loss {:.4f}",
        "sero/oracle_loss": "oracle loss {:.3f}",
        "eval/valid_seen": "seen {:.3f}",
        "eval/valid_unseen": "unseen {:.3f}",
        "eval/test": "test {:.3f}",
        "time/iteration_s": "{:.1f} s",
    }
    parts += [text.format(metrics[key]) for key, text in shown.items() if key in metrics]
    return "  ".join(parts)


def evaluation_table(evaluation: Evaluation) -> list[str]:
    """Lines of a plain table: task type, won/episodes, rate and Wilson interval at 95 %."""
    conditions = evaluation.conditions
    lines = [
        f"{evaluation.panel} (panel {evaluation.panel_hash}, policy {conditions.policy_hash}, "
        f"{conditions.baseline}, protocol {conditions.protocol}, T {conditions.temperature:g})"
    ]
    lines += [
        f"  {row.task_type:<34} {row.num_won:>4}/{row.num_episodes:<4} {row.rate:6.1%} "
        f"[{row.low:.1%}, {row.high:.1%}]  score {row.mean_score:.3f}  {row.mean_steps:.1f} steps"
        for row in evaluation.results
    ]
    lines.append(f"  {'macro (mean of the types)':<34} {'':>9} {evaluation.macro_rate:6.1%}")
    rates = rates_by_seed(evaluation.outcomes)
    if len(rates) > 1:
        each = ", ".join(f"{seed}: {rate:.1%}" for seed, rate in rates.items())
        lines.append(f"  by seed: {each}; standard deviation {stdev(rates.values()):.1%}")
    return lines


def _branch_once(trainer: Trainer) -> IterationRecord:
    config = trainer.config
    tasks = sample_tasks(trainer.tasks, config.seed, 1, config.rollout.num_tasks)
    groups = trainer.collector.collect(
        tasks,
        group_size=config.rollout.group_size,
        sampling=training_sampling(config),
        seed=derive_seed(config.seed, "collect", 1),
        prefix="i1",
    )
    if trainer.brancher is None:
        raise SeroError("this config has no [sero] section")
    seed = derive_seed(config.seed, "branch", 1)
    branches = tuple(trainer.brancher.branch(groups, seed=seed, iteration=1))
    metrics = rollout_metrics(groups) | branch_metrics(branches)
    return IterationRecord(1, metrics, tuple(groups), branches, (), None)


def _write_once(out: Path, record: IterationRecord) -> None:
    sink = open_log(out, None)
    sink.write(record)
    sink.close()


def _state_to_resume(config: RunConfig, out: Path) -> TrainerState | None:
    """State of the newest complete checkpoint; None when there is none yet."""
    found = complete_checkpoints(out)
    if not found:
        return None
    folder = found[-1][1]
    state = read_state(folder)
    # checkpoints of version 0.1.0 name the group
    known = (config.trajectory_hash(), config.group_hash())
    check_same_run(folder, state, known, config.seed)
    return state


def _resume_point(out: Path, resume: bool, state: TrainerState | None) -> int | None:
    """The last iteration whose log lines stay; None refuses an existing log."""
    if not resume:
        return None
    return -1 if state is None else state.iteration
