"""S8: no oracle at evaluation, and no oracle's plan in an evaluation prompt.

The stock ALFWorld puts `expert_plan` into the infos of an environment built with its expert; a
prompt that shows it, or code that asks an oracle while it evaluates, makes every number worthless.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sero_core import oracles
from sero_core.baselines import BaselineConfig, ReAct, Reflexion, ZeroShot
from sero_core.baselines.demonstrations import demonstrations_for
from sero_core.config import load_config
from sero_core.evaluate import evaluate
from sero_core.protocols import FixedProtocol
from sero_core.setup import build_trainer, evaluation_sampling
from sero_core.train import evaluate_panels
from sero_core.types import Observation, Oracle, Prefix
from tests.support.records import CONDITIONS
from tests.support.scripted import ScriptedEngine
from tests.support.train import TINY

QUICK = ("evaluation.num_tasks=3", "rollout.max_steps=4", 'evaluation.panels=["valid_seen"]')
BASELINES = [ZeroShot(), ReAct(), Reflexion(num_trials=2)]


class Forbidden:
    """An oracle that must not be asked."""

    def start(self, prefix: Prefix) -> None:
        raise AssertionError("an oracle was started during an evaluation")

    def act(self, observation: Observation) -> str:
        raise AssertionError("an oracle was asked during an evaluation")


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.name)
def test_s08_an_evaluation_of_a_sero_run_asks_no_oracle(
    baseline: BaselineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(self: object) -> Oracle:
        return Forbidden()

    parts = [part for name in oracles.__all__ if isinstance(part := getattr(oracles, name), type)]
    assert len(parts) >= 5
    for part in parts:
        monkeypatch.setattr(part, "__call__", forbid)
    chosen = f'evaluation.baseline={{name="{baseline.name}"}}'
    trainer = build_trainer(load_config(TINY, (*QUICK, chosen)))
    [found] = evaluate_panels(trainer, 0)
    trainer.close()
    assert len(found.outcomes) == 3


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.name)
def test_s08_no_prompt_contains_a_plan(baseline: BaselineConfig) -> None:
    """Prompts consist of what the environment showed, what the model said, and the examples."""
    trainer = build_trainer(load_config(TINY, QUICK))
    script: Callable[[str, int], str] = lambda prompt, seed: "<action>look</action>"  # noqa: E731
    engine = ScriptedEngine(trainer.policy.tokenizer, script)
    agent = baseline(replace(trainer.collector, engine=engine))
    [panel] = trainer.panels
    sampling = evaluation_sampling(trainer.config)
    evaluate(
        agent,
        panel,
        FixedProtocol(),
        sampling=sampling,
        iteration=0,
        number=0,
        conditions=CONDITIONS,
    )
    trainer.close()
    items = [item for task in panel.tasks for item in demonstrations_for(task, 2)]
    examples = {item.goal.rstrip(".") for item in items}
    for prompt in engine.prompts:
        assert "expert_plan" not in prompt
        if "Write one lesson" not in prompt:
            own = prompt.rpartition("\ntask: ")[2]
            taken = [line for line in own.splitlines() if " > " in line]
            assert all(line.startswith("look > ") for line in taken), own
            others = [line for line in prompt.splitlines() if line.startswith("task: ")][:-1]
            assert {line.removeprefix("task: ") for line in others} <= examples, prompt


def test_s08_evaluation_loads_no_oracle_code() -> None:
    """What evaluation needs can be imported and used without any module of `oracles`."""
    code = (
        "import sys, sero_core.evaluate, sero_core.baselines, sero_core.protocols, "
        "sero_core.sections_evaluation\n"
        "assert not [name for name in sys.modules if name.startswith('sero_core.oracles')]\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'torch']\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_s08_environments_are_built_without_an_expert() -> None:
    for path in (Path(__file__).parents[2] / "sero_core" / "envs").rglob("*.py"):
        assert "expert_plan" not in path.read_text(), path
