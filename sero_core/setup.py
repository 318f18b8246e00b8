"""From a config to the parts of a run: policy, engine, environments, oracle, tasks, panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from sero_core.baselines.episodes import Agent
from sero_core.branch import Brancher
from sero_core.checkpoint import POLICY_OPTIMIZER
from sero_core.collect import Collector, Sampling
from sero_core.config import RunConfig
from sero_core.credit.ppo import PPO
from sero_core.critic import CRITIC_FOLDER, CRITIC_OPTIMIZER, Critic, make_critic
from sero_core.engines.transformers import TransformersRuntime
from sero_core.envs import load_tasks, make_env
from sero_core.envs.vector import EnvPool, LocalEnvs, VectorEnv
from sero_core.envs.workers import WorkerEnvs
from sero_core.evaluate import Panel, tasks_hash
from sero_core.optimizer_steps import make_optimizer
from sero_core.policy import Policy, open_policy, reference_policy
from sero_core.prompts import PromptBuilder
from sero_core.types import SeroError, Task

ORACLE_OPTIMIZER = "oracle_optimizer"


@dataclass(frozen=True, slots=True)
class Trainer:
    """The parts of a run. The models of `policy` and `critic` and the `optimizers` hold the only
    state that changes; each optimizer's name is its folder in a checkpoint."""

    config: RunConfig
    policy: Policy
    reference: Policy | None
    critic: Critic | None
    optimizers: Mapping[str, torch.optim.AdamW]
    collector: Collector
    brancher: Brancher | None
    tasks: tuple[Task, ...]
    panels: tuple[Panel, ...]
    agent: Agent

    @property
    def optimizer(self) -> torch.optim.AdamW:
        """The policy's own."""
        return self.optimizers[POLICY_OPTIMIZER]

    def close(self) -> None:
        self.collector.envs.close()
        if self.brancher is not None:
            self.brancher.envs.close()


def build_trainer(
    config: RunConfig,
    checkpoint: Path | None = None,
    check_stop: Callable[[], None] = lambda: None,
    *,
    is_training: bool = True,
) -> Trainer:
    """Load everything. `checkpoint` replaces the weights of policy and critic, not the reference's;
    without `is_training` there is neither a critic nor a reference policy.

    Errors: `SeroError` subclasses naming the policy folder, data root or split that is wrong.
    """
    policy = open_policy(config.policy, checkpoint, config.seed)
    has_reference = is_training and config.loss.kl_coef > 0
    reference = reference_policy(policy, config.policy) if has_reference else None
    critic = _critic(config, checkpoint) if is_training else None
    engine = TransformersRuntime(config.engine, policy)
    make = partial(make_env, config.env)
    pool = EnvPool(make)
    envs: VectorEnv = LocalEnvs(pool)
    if config.env.num_workers > 0:
        envs = WorkerEnvs(make, config.env.num_workers, config.env.worker_deadline_s)
    builder = PromptBuilder(config.prompt, policy.tokenizer, config.env.name)
    collector = Collector(engine, envs, builder, config.rollout, check_stop)
    brancher = None
    if config.sero is not None:
        brancher = Brancher(
            engine=engine,
            envs=pool,
            builder=builder,
            oracle=config.sero.oracle(),
            config=config.sero,
            sampling=training_sampling(config),
            max_steps=config.rollout.max_steps,
            success_reward=config.rollout.success_reward,
        )
    return Trainer(
        config=config,
        policy=policy,
        reference=reference,
        critic=critic,
        optimizers=_optimizers(policy, critic, config),
        collector=collector,
        brancher=brancher,
        tasks=_train_tasks(config),
        panels=tuple(_panel(config, name) for name in panel_names(config)),
        agent=config.evaluation.baseline(collector),
    )


def _optimizers(
    policy: Policy, critic: Critic | None, config: RunConfig
) -> dict[str, torch.optim.AdamW]:
    """By the name of their folder in a checkpoint."""
    optimizers = {POLICY_OPTIMIZER: make_optimizer(policy, config.optimizer)}
    if critic is not None:
        optimizers[CRITIC_OPTIMIZER] = critic.optimizer
    if config.sero is not None and config.sero.optimization == "own_optimizer":
        lr = config.optimizer.lr * config.sero.lr_multiplier
        own = config.optimizer.model_copy(update={"lr": lr})
        optimizers[ORACLE_OPTIMIZER] = make_optimizer(policy, own)
    return optimizers


def training_sampling(config: RunConfig) -> Sampling:
    return Sampling(config.sampling.temperature, config.sampling.max_new_tokens)


def evaluation_sampling(config: RunConfig) -> Sampling:
    return Sampling(config.evaluation.temperature, config.sampling.max_new_tokens)


def panel_names(config: RunConfig) -> tuple[str, ...]:
    """The splits that are evaluated: those of the config, else the protocol's."""
    evaluation = config.evaluation
    return evaluation.panels or evaluation.protocol.panels(config.env.evaluation_splits)


def _critic(config: RunConfig, checkpoint: Path | None) -> Critic | None:
    estimator = config.estimator
    if not isinstance(estimator, PPO):
        return None
    critic = make_critic(
        estimator.critic, estimator.level, config.policy, config.optimizer, config.seed
    )
    if checkpoint is not None:
        critic.load(checkpoint / CRITIC_FOLDER)
    return critic


def _train_tasks(config: RunConfig) -> tuple[Task, ...]:
    tasks = load_tasks(config.env, "train")
    if len(tasks) < config.rollout.num_tasks:
        raise SeroError(
            f"rollout.num_tasks is {config.rollout.num_tasks}, but the train split has only "
            f"{len(tasks)} tasks"
        )
    return tasks


def _panel(config: RunConfig, split: str) -> Panel:
    tasks = load_tasks(config.env, split)
    count = config.evaluation.num_tasks
    if not tasks or count > len(tasks):
        raise SeroError(
            f"evaluation.num_tasks is {count}, but split {split} has {len(tasks)} tasks"
        )
    if count == 0:
        return Panel(split, tasks, tasks_hash(tasks))
    stride = len(tasks) / count
    chosen = tuple(tasks[int(i * stride)] for i in range(count))
    return Panel(split, chosen, tasks_hash(tasks))
