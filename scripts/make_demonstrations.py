"""Make the worked examples of the prompting baselines: `sero_core/baselines/data/`.

    python scripts/make_demonstrations.py [OUT]

Examples are episodes of our own oracles on training tasks of our own generators, with thoughts from
the templates below. ALFWorld's oracle is unprivileged; WebShop's knows the product, so only goals
count that it finds with the instruction's own words.

Their seed is no run's: no example is a task that any config trains or evaluates on. The same code
writes the same bytes on every machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median_low

from sero_core.baselines.demonstrations import (
    ANY_TYPE,
    FOLDER,
    Demonstration,
    DemonstrationFile,
    DemonstrationStep,
)
from sero_core.envs.alfworld.env import AlfworldEnv
from sero_core.envs.alfworld.generator import generate
from sero_core.envs.alfworld.plan_state import LIGHT, TWO, Goal
from sero_core.envs.alfworld.tasks import TASK_TYPES, list_tasks
from sero_core.envs.webshop import source
from sero_core.envs.webshop.generated import make_shop
from sero_core.envs.webshop.products import Product
from sero_core.oracles.explorer import ExplorerOracle
from sero_core.oracles.goal import goal_from_file
from sero_core.oracles.webshop import Shopper, make_plan
from sero_core.prompts import task_text
from sero_core.sections_webshop import WebShopEnv as WebShopConfig
from sero_core.types import Environment, Observation, Oracle, Prefix, Task

SEED = 910_401
GAMES_PER_TYPE = 12
NUM_PRODUCTS = 300
NUM_GOALS = 40
PER_TYPE = 2
MAX_STEPS = 50
CHANGES = {"clean": "clean", "heat": "heat", "cool": "cool"}


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write(out, "alfworld", alfworld())
    write(out, "webshop", webshop())


def write(out: Path, env: str, demonstrations: Sequence[Demonstration]) -> None:
    content = DemonstrationFile(
        env=env, made_by="scripts/make_demonstrations.py", demonstrations=tuple(demonstrations)
    )
    text = json.dumps(content.model_dump(mode="json"), indent=1, ensure_ascii=False)
    (out / f"{env}.json").write_text(text + "\n")
    print(f"{out / env}.json: {len(demonstrations)} demonstrations")


def alfworld() -> list[Demonstration]:
    """For each task type the two episodes of the most typical length, in different rooms."""
    counts = {"train": GAMES_PER_TYPE * len(TASK_TYPES), "valid_seen": 0, "valid_unseen": 0}
    chosen: list[Demonstration] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "games"
        generate(root, seed=SEED, difficulty="normal", counts=counts)
        tasks = list_tasks(root, "train")
        for task_type in TASK_TYPES:
            mine = [task for task in tasks if task.task_type == task_type]
            chosen += typical([demonstrate(task) for task in mine])
    return chosen


def webshop() -> list[Demonstration]:
    """Two purchases of typical length whose query is made of the instruction's words."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "shop"
        make_shop(root, NUM_PRODUCTS, SEED)
        config = WebShopConfig(data_root=str(root), is_solvable_only=True)
        env, oracle = source.make_env(config), Shopper()
        made: list[Demonstration] = []
        for task in source.list_tasks(config, root, "train")[:NUM_GOALS]:
            env.reset(task)
            plan = make_plan(env.errand)
            if plan.query.source == "instruction":
                shopping = Shopping(env.errand.shop.product(plan.product), plan.query.text)
                made.append(play(env, oracle, task, shopping.think))
    return [item.model_copy(update={"task_type": ANY_TYPE}) for item in typical(made)]


def demonstrate(task: Task) -> Demonstration:
    """An episode of the explorer, which knows only what the episode has shown."""
    env, goal = AlfworldEnv(), goal_from_file(task.path, task.content_hash)
    thinker = Thinker(goal)
    return play(env, ExplorerOracle()(), task, thinker.think)


def play(
    env: Environment, oracle: Oracle, task: Task, think: Callable[[Observation, str], str]
) -> Demonstration:
    """Errors: `RuntimeError` when the oracle does not win."""
    observation = env.reset(task)
    goal = task_text(observation.text)
    oracle.start(Prefix(task, (), observation, env))
    steps: list[DemonstrationStep] = []
    while not observation.is_terminated and len(steps) < MAX_STEPS:
        action = oracle.act(observation)
        thought = think(observation, action)
        steps.append(
            DemonstrationStep(observation=observation.text, thought=thought, action=action)
        )
        observation = env.step(action)
    if not observation.is_won:
        raise RuntimeError(f"the oracle did not win {task.task_id}")
    return Demonstration(
        task_id=task.task_id,
        task_type=task.task_type,
        goal=goal,
        steps=tuple(steps),
        final_observation=observation.text,
    )


def typical(demonstrations: Sequence[Demonstration]) -> list[Demonstration]:
    """Those nearest to the median length; the first of each room, ties by task id."""
    middle = median_low(len(item.steps) for item in demonstrations)
    ordered = sorted(demonstrations, key=lambda d: (abs(len(d.steps) - middle), d.task_id))
    by_goal: dict[str, Demonstration] = {}
    for item in ordered:
        by_goal.setdefault(item.goal, item)
    return list(by_goal.values())[:PER_TYPE]


class Thinker:
    """Short thoughts for ALFWorld actions, in the order of an episode."""

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.change = next((word for word in CHANGES if f"_{word}_" in goal.task_type), "")
        self.held = ""
        self.num_placed = 0
        self.num_steps = 0
        self.is_changed = False

    def think(self, observation: Observation, action: str) -> str:
        """The thought before an action; remembers what the action does."""
        self.num_steps += 1
        verb, _, rest = action.partition(" ")
        thought = self._plan() + self._thought(observation, verb, rest)
        if verb == "take":
            self.held = rest.partition(" from ")[0]
        elif verb == "move":
            self.held, self.num_placed = "", self.num_placed + 1
        elif verb in CHANGES:
            self.is_changed = True
        return thought

    def _plan(self) -> str:
        """What the first thought says about the whole task."""
        if self.num_steps > 1:
            return ""
        target, parent = _a(self.goal.target), _a(self.goal.parent)
        if self.goal.task_type == LIGHT:
            return f"I need to find {target}, take it, and turn on {parent} while I hold it. "
        if self.goal.task_type == TWO:
            kind = self.goal.target
            return f"I need to put two things of kind {kind} in or on {parent}, one by one. "
        change = f", {self.change} it," if self.change else ""
        return f"I need to find {target}{change} and put it in or on {parent}. "

    def _thought(self, observation: Observation, verb: str, rest: str) -> str:
        place = rest.removeprefix("to ").rpartition(" with " if " with " in rest else " to ")[2]
        if verb == "go":
            return self._going(place)
        if verb == "open":
            return f"The {rest} is closed, so I open it."
        if verb == "take":
            return f"There is the {rest.partition(' from ')[0]}. I take it."
        if verb == "move":
            return f"I am at the {place} and put the {self.held} there."
        if verb in CHANGES:
            return f"Now I {verb} the {self.held} with the {place}."
        if verb == "use":
            return f"I hold the {self.held}, and here is the {rest}. I turn it on."
        raise RuntimeError(f"no thought for action {verb!r} after {observation.text!r}")

    def _going(self, place: str) -> str:
        kind = place.rpartition(" ")[0]
        if self.held and self.change and not self.is_changed:
            return f"I hold the {self.held}. To {self.change} it I go to the {place}."
        if self.held and self.goal.task_type == LIGHT:
            return f"I hold the {self.held}. Next I go to the {place}, where a light may be."
        if self.held and kind == self.goal.parent:
            return f"I hold the {self.held}. I bring it to the {place}."
        if self.held:
            return f"I hold the {self.held}. I go to the {place}."
        if self.num_placed:
            return f"One is done. I look for another {self.goal.target} at the {place}."
        if self.num_steps == 1:
            return f"It may be at the {place}, so I look there first."
        return f"I see no {self.goal.target} to take here. Next I look at the {place}."


class Shopping:
    """Short thoughts for WebShop actions, from what the pages show."""

    def __init__(self, product: Product, query: str) -> None:
        self.product = product
        self.query = query

    def think(self, observation: Observation, action: str) -> str:
        verb, _, rest = action.partition("[")
        clicked = rest.removesuffix("]")
        if verb == "search":
            return f"I look for what is asked with its own words: {self.query}."
        if clicked == self.product.asin.lower():
            return f"{self.product.title} at {self.product.price_tag} fits. I open it."
        if clicked == "next >":
            return "Nothing on this page fits. I turn to the next one."
        if clicked == "buy now":
            return "All that is asked for is chosen and the price fits. I buy it."
        if "click[buy now]" in observation.admissible:
            return f"The instruction asks for {clicked}. I choose it."
        raise RuntimeError(f"no thought for action {action!r}")


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
