"""Zero-shot, ReAct and Reflexion with a scripted model, so that the control flow is visible."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sero_core.baselines import ReAct, Reflexion, ZeroShot
from sero_core.baselines.demonstrations import demonstrations_for, render
from sero_core.baselines.reflexion import LESSONS, lesson_in, reflection_prompt
from sero_core.collect import Sampling
from sero_core.prompts import PromptTooLong
from sero_core.types import SeroError, Task
from tests.unit.baselines.conftest import MakeCollector, solver

SAMPLING = Sampling(temperature=0.4, max_new_tokens=64)
Plans = dict[str, list[str]]


def test_zero_shot_prompts_are_the_training_prompts(
    tasks: tuple[Task, ...], plans: Plans, make_collector: MakeCollector
) -> None:
    collector, engine = make_collector(solver(plans, lambda prompt: True))
    episodes = ZeroShot()(collector).play(tasks, sampling=SAMPLING, seed=1, prefix="e-")
    again, trained = make_collector(solver(plans, lambda prompt: True))
    groups = again.collect(tasks, group_size=1, sampling=SAMPLING, seed=1, prefix="e-")
    assert engine.prompts == trained.prompts
    assert episodes == [group.episodes[0] for group in groups]
    assert all(episode is not None and episode.is_won for episode in episodes)


def test_a_task_that_is_drawn_twice_is_sampled_with_two_seeds(
    tasks: tuple[Task, ...], plans: Plans, make_collector: MakeCollector
) -> None:
    seeds: list[int] = []
    script = solver(plans, lambda prompt: False)

    def answer(prompt: str, seed: int) -> str:
        seeds.append(seed)
        return script(prompt, seed)

    collector, _ = make_collector(answer)
    drawn = [tasks[0], tasks[1], tasks[0], tasks[0]]
    episodes = ZeroShot()(collector).play(drawn, sampling=SAMPLING, seed=1, prefix="e-")
    assert [e.task for e in episodes if e is not None] == drawn
    assert len(set(seeds)) == len(seeds) == 4 * 12


def test_react_shows_an_episode_of_the_same_task_type_with_thoughts(
    tasks: tuple[Task, ...], plans: Plans, make_collector: MakeCollector
) -> None:
    collector, engine = make_collector(solver(plans, lambda prompt: True))
    ReAct(num_demonstrations=2)(collector).play(tasks, sampling=SAMPLING, seed=1, prefix="e-")
    first = dict(zip((task.task_id for task in tasks), engine.prompts, strict=False))
    for task in tasks:
        prompt = first[task.task_id]
        examples = demonstrations_for(task, 2)
        assert [item.task_type for item in examples] == [task.task_type] * 2
        for item in examples:
            assert item.goal in prompt
            assert all(f"<think>{step.thought}</think>" in prompt for step in item.steps)
        assert prompt.index("Example 2") < prompt.index("You are an expert agent")


def test_terse_examples_look_like_terse_history(tasks: tuple[Task, ...]) -> None:
    [item] = demonstrations_for(tasks[0], 1)
    lines = render([item], "terse", "alfworld").splitlines()
    assert lines[0] == f"task: {item.goal.rstrip('.')}"
    assert [line.partition(" > ")[0] for line in lines[1:-1]] == [s.action for s in item.steps]
    assert lines[-1] == ""


def test_the_lesson_of_a_failed_trial_enters_the_next_prompt(
    tasks: tuple[Task, ...], plans: Plans, make_collector: MakeCollector
) -> None:
    lesson = "- Open the fridge first.\n"
    collector, engine = make_collector(solver(plans, lambda prompt: prompt.count(lesson) == 2))
    baseline = Reflexion(num_trials=3, max_lesson_tokens=7)
    episodes = baseline(collector).play(tasks[:1], sampling=SAMPLING, seed=1, prefix="e-")
    assert episodes[0] is not None
    assert episodes[0].is_won, "the third trial had both lessons"
    asked = [i for i, prompt in enumerate(engine.prompts) if "Write one lesson" in prompt]
    assert asked == [12, 25], "one lesson after each failed trial of 12 steps"
    assert [engine.limits[i] for i in asked] == [7, 7]
    assert "Action 12: 'look'" in engine.prompts[12]
    assert LESSONS not in "".join(engine.prompts[:13])
    assert all(prompt.count(lesson) == 1 for prompt in engine.prompts[13:25])
    assert all(prompt.count(lesson) == 2 for prompt in engine.prompts[26:])


def test_only_the_newest_lessons_are_kept(
    tasks: tuple[Task, ...], plans: Plans, make_collector: MakeCollector
) -> None:
    collector, engine = make_collector(solver(plans, lambda prompt: False))
    baseline = Reflexion(num_trials=4, max_lessons=2)
    baseline(collector).play(tasks[:1], sampling=SAMPLING, seed=1, prefix="e-")
    assert engine.prompts[-1].count("- Open the fridge first.\n") == 2


@pytest.mark.parametrize(("counting", "num_trials_played"), [("any", 1), ("last", 3)])
def test_counting_differs_where_a_later_trial_fails(
    tasks: tuple[Task, ...],
    plans: Plans,
    make_collector: MakeCollector,
    counting: str,
    num_trials_played: int,
) -> None:
    """The model wins the first trial only: `any` counts it and stops, `last` counts the third."""
    collector, engine = make_collector(lambda prompt, seed: "")
    script = solver(plans, lambda prompt: trial[0] == 0)
    trial = [0]

    def answer(prompt: str, seed: int) -> str:
        if "already taken" not in prompt.rpartition("You are an expert agent")[2]:
            trial[0] = len([p for p in engine.prompts if "already taken" not in p]) - 1
        return script(prompt, seed)

    engine.answer = answer
    baseline = Reflexion.model_validate({"num_trials": 3, "counting": counting})
    [episode] = baseline(collector).play(tasks[:1], sampling=SAMPLING, seed=1, prefix="e-")
    assert episode is not None
    assert episode.is_won is (counting == "any")
    starts = [p for p in engine.prompts if "already taken" not in p and "Write one" not in p]
    assert len(starts) == num_trials_played
    assert f" {counting} of 3" in baseline.label


def test_any_plays_on_only_where_it_failed(
    tasks: tuple[Task, ...], plans: Plans, make_collector: MakeCollector
) -> None:
    hard = tasks[2]
    goals = list(plans)
    collector, engine = make_collector(
        solver(plans, lambda prompt: LESSONS in prompt or goals[2] not in prompt)
    )
    episodes = Reflexion(counting="any")(collector).play(
        tasks, sampling=SAMPLING, seed=1, prefix="e-"
    )
    assert all(episode is not None and episode.is_won for episode in episodes)
    assert [e.task.task_id for e in episodes if e and "t1-" in e.episode_id] == [hard.task_id]
    assert sum("Write one lesson" in prompt for prompt in engine.prompts) == 1


def test_the_first_trial_is_reacts_episode(
    tasks: tuple[Task, ...], plans: Plans, make_collector: MakeCollector
) -> None:
    def seeds_of(baseline: ReAct | Reflexion) -> list[tuple[str, int]]:
        seen: list[tuple[str, int]] = []
        script = solver(plans, lambda prompt: True)

        def answer(prompt: str, seed: int) -> str:
            seen.append((prompt, seed))
            return script(prompt, seed)

        collector, _ = make_collector(answer)
        baseline(collector).play(tasks, sampling=SAMPLING, seed=1, prefix="e-")
        return seen

    assert seeds_of(Reflexion(counting="any")) == seeds_of(ReAct())


def test_a_long_reflection_drops_its_oldest_steps(
    tasks: tuple[Task, ...], plans: Plans, make_collector: MakeCollector
) -> None:
    collector, _ = make_collector(solver(plans, lambda prompt: False))
    [episode] = ZeroShot()(collector).play(tasks[:1], sampling=SAMPLING, seed=1, prefix="e-")
    assert episode is not None
    whole = reflection_prompt(collector.builder, episode, 20_000)
    cut = reflection_prompt(collector.builder, episode, len(whole.ids) - 1)
    assert "Action 1:" in whole.text
    assert "Action 1:" not in cut.text
    assert "Action 12:" in cut.text
    with pytest.raises(PromptTooLong, match="max_prompt_tokens is 10"):
        reflection_prompt(collector.builder, episode, 10)


@pytest.mark.parametrize(
    ("answer", "lesson"),
    [
        ("<think>long\nthought</think>\nGo  north.\n", "Go north."),
        ("<action>look</action>", "look"),
        ("  ", "(nothing was written)"),
    ],
)
def test_lessons_are_one_line_without_tags(answer: str, lesson: str) -> None:
    assert lesson_in(answer) == lesson


def test_an_environment_without_examples_is_named(tasks: tuple[Task, ...]) -> None:
    with pytest.raises(SeroError, match="chess"):
        demonstrations_for(replace(tasks[0], env="chess"), 1)


def test_on_webshop_examples_and_reflections_show_pages_as_prompts_do(
    goals: tuple[Task, ...], make_shopper: MakeCollector
) -> None:
    lesson = "Buy sooner."
    collector, engine = make_shopper(
        lambda prompt, seed: (
            lesson if "Write one lesson" in prompt else "<action>search[x]</action>"
        )
    )
    episodes = Reflexion(num_trials=2)(collector).play(goals, sampling=SAMPLING, seed=1, prefix="e")
    assert [(e.is_won, e.score) for e in episodes if e] == [(False, 0.0)] * len(goals)
    role = "You are an expert autonomous agent operating in the WebShop"
    for prompt in engine.prompts:
        if "Write one lesson" in prompt:
            assert "'Back to Search' [SEP] 'Page 1 (" in prompt
            assert "Action 3: 'search[x]'" in prompt
            assert "Instruction:" not in prompt
        else:
            examples, _, own = prompt.partition(role)
            assert examples.count("'Back to Search' [SEP] 'Page 1 (") == 1
            assert "Instruction:" not in prompt
            assert "The task is done." in examples
            assert "Your admissible actions" in own
    assert sum(f"- {lesson}" in prompt for prompt in engine.prompts) == 3 * len(goals)
