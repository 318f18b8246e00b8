"""Train demo configs over seeds and print success over iterations, seen and unseen, as Markdown.

    python benchmarks/demo_study.py --out DIR [--configs grpo_demo sero_demo] [--seeds 0 1 2]
                                    [--workers 1] [--set key=value ...]

Finished runs in DIR are read, not repeated; interrupted ones resume. Every run evaluates on the
same fixed panels with the same sampling seeds, so columns differ only by config and seed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sero_core.config import load_config
from sero_core.records import IterationPayload, from_line

ROOT = Path(__file__).parents[1]
PANELS = ("valid_seen", "valid_unseen")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--configs", nargs="+", default=["grpo_demo", "sero_demo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="only read what is in --out")
    parser.add_argument("--set", nargs="*", default=[], dest="overrides")
    args = parser.parse_args()
    jobs = [] if args.report else [(config, seed) for seed in args.seeds for config in args.configs]
    with ThreadPoolExecutor(args.workers) as pool:
        list(pool.map(lambda job: run(args.out, *job, args.overrides), jobs))
    report(args.out, args.configs, args.seeds)


def run(out: Path, config: str, seed: int, overrides: list[str]) -> None:
    """One `sero train` process, its lines in `<out>/<config>-<seed>.log`."""
    folder = out / f"{config}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "sero_core.cli", "train", str(ROOT / f"configs/{config}.toml")]
    command += ["--out", str(folder), "--resume", "--set", f"seed={seed}"]
    for override in overrides:
        command += ["--set", override]
    with (out / f"{config}-{seed}.log").open("a") as log:
        subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)


def read(out: Path, config: str, seed: int) -> list[IterationPayload]:
    path = out / f"{config}-{seed}" / "records.jsonl"
    return [from_line(line) for line in path.read_text().splitlines()]


def report(out: Path, configs: list[str], seeds: list[int]) -> None:
    """The table of every evaluation: mean over seeds and each seed's rate in percent."""
    records = {(config, seed): read(out, config, seed) for config in configs for seed in seeds}
    some = next(iter(records.values()))
    counts = {
        evaluation.panel: evaluation.results[0].num_tasks for evaluation in some[0].evaluations
    }
    print(f"Panels: {', '.join(f'{panel} {count} tasks' for panel, count in counts.items())}; ")
    print(f"configs {', '.join(configs)}, seeds {', '.join(map(str, seeds))}.\n")
    print("| config | panel | iteration | mean | sd over seeds | each seed |")
    print("|---|---|---|---|---|---|")
    for config in configs:
        for panel in PANELS:
            for iteration in evaluated([records[config, seed] for seed in seeds]):
                rates = [rate(records[config, seed], iteration, panel) for seed in seeds]
                spread = statistics.stdev(rates) if len(rates) > 1 else 0.0
                each = " / ".join(f"{value:.1f}" for value in rates)
                mean = statistics.mean(rates)
                print(f"| {config} | {panel} | {iteration} | {mean:.1f} | {spread:.1f} | {each} |")
    print()
    for config in configs:
        print(f"- {config}: {describe(records, config, seeds)}")


def evaluated(runs: list[list[IterationPayload]]) -> list[int]:
    """Iterations at which every run has an evaluation."""
    return sorted(set.intersection(*({r.iteration for r in run if r.evaluations} for run in runs)))


def rate(records: list[IterationPayload], iteration: int, panel: str) -> float:
    """Success in percent at an evaluation."""
    return 100 * next(r.metrics[f"eval/{panel}"] for r in records if r.iteration == iteration)


def describe(
    records: dict[tuple[str, int], list[IterationPayload]], config: str, seeds: list[int]
) -> str:
    last_iteration = evaluated([records[config, seed] for seed in seeds])[-1]
    minutes, steps, oracle = [], [], []
    for seed in seeds:
        run_records = [r for r in records[config, seed] if r.iteration <= last_iteration]
        minutes.append(
            sum(
                r.metrics.get("time/iteration_s", r.metrics.get("time/eval_s", 0.0))
                for r in run_records
            )
            / 60
        )
        last = run_records[-1].metrics
        steps.append(last["progress/env_steps"])
        oracle.append(last["progress/oracle_steps"])
    group = load_config(ROOT / f"configs/{config}.toml").group_hash()
    return (
        f"{statistics.mean(minutes):.1f} min to iteration {last_iteration} on one core, "
        f"{statistics.mean(steps):.0f} policy steps and {statistics.mean(oracle):.0f} oracle steps "
        f"(config {group})"
    )


if __name__ == "__main__":
    main()
