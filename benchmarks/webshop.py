"""WebShop on generated catalogues: steps per second, search, memory, restore, preparation.

    python benchmarks/webshop.py [--quick] [--json FILE] [--keep DIR]

Sizes are 1,000, 10,000 and 100,000 products; `--quick` leaves out the largest. Times are CPU time
of one process, so that other jobs disturb little (preparation is wall time as well). A walk
searches with a text that was never searched before, then takes five random admissible clicks, and
so on over episodes of at most 15 steps; every observation is rendered. `--keep` reuses the shops
that an earlier run left in DIR.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from sero_core.envs.webshop.actions import click
from sero_core.envs.webshop.catalogue import generate_catalogue
from sero_core.envs.webshop.env import WebShopEnv
from sero_core.envs.webshop.goals import Goal
from sero_core.envs.webshop.nouns import choose_nouns
from sero_core.envs.webshop.prepare import Sources, prepare
from sero_core.envs.webshop.shop import Shop
from sero_core.types import Task

SIZES = (1_000, 10_000, 100_000)
CLICKS_PER_SEARCH = 5
STEPS_PER_EPISODE = 15
TARGETS = {
    "steps_per_s_new_queries_1k": (">=", 1500.0),
    "environment_kb": ("<=", 20.0),
    "restore_us": ("<=", 2.0),
    "prepare_100k_wall_s": ("<=", 180.0),
}
PROCESS = """
import re, sys
from pathlib import Path
from sero_core.envs.webshop.env import WebShopEnv
from sero_core.envs.webshop.shop import Shop
def private():
    text = open("/proc/self/smaps_rollup").read()
    return sum(int(kb) for kb in re.findall(r"Private_(?:Clean|Dirty): +(\\d+) kB", text))
before = private()
shop = Shop.open(Path(sys.argv[1]))
opened = private()
for number in range(200):
    goal = shop.goals("synthetic")[number]
    shop.search(goal.instruction_text)
print(opened - before, private() - before)
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """One catalogue. `search_ms` are whole instructions, `short_search_ms` three words of one;
    `process_mb` is the private memory of one more process after 200 searches.
    """

    num_products: int
    num_goals: int
    solvable_share: float
    generate_s: float | None
    prepare_cpu_s: float | None
    prepare_wall_s: float | None
    shop_mb: float
    steps_per_s_new_queries: float
    steps_per_s_known_queries: float
    search_share: float
    search_ms: float
    search_p99_ms: float
    short_search_ms: float
    environment_kb: float
    open_process_mb: float
    process_mb: float
    restore_us: float
    reset_us: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="within 50 s")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--keep", type=Path, help="keep the shops in this folder")
    options = parser.parse_args()
    sizes = SIZES[:2] if options.quick else SIZES
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        found = [measure(size, folder, is_quick=options.quick) for size in sizes]
    flat = headline(found)
    report(found, flat)
    if options.json is not None:
        rows = {str(figures.num_products): asdict(figures) for figures in found}
        options.json.write_text(json.dumps({**flat, "catalogues": rows}, indent=2) + "\n")
    return 0


def measure(num_products: int, folder: Path, *, is_quick: bool) -> Figures:
    """All figures of one size."""
    times = make_shop(num_products, folder)
    path = folder / f"shop-{num_products}"
    shop = Shop.open(path)
    goals = shop.goals("synthetic")
    num_steps = 3_000 if is_quick else 12_000
    draw = random.Random(1)
    queries = new_queries(shop, draw)
    walk(shop, path, queries, draw, 300)
    new, share = walk(shop, path, queries, draw, num_steps)
    few = [next(queries) for _ in range(20)]
    known, _ = walk(shop, path, iter(lambda: draw.choice(few), None), draw, num_steps)
    long_times = search_times(shop, [next(queries) for _ in range(300)])
    short = [" ".join(draw.sample(next(queries).split(), 3)) for _ in range(300)]
    opened_kb, used_kb = process_memory(path)
    flags = [goals[i].is_solvable for i in range(0, len(goals), max(1, len(goals) // 2000))]
    return Figures(
        num_products=num_products,
        num_goals=len(goals),
        solvable_share=sum(map(bool, flags)) / len(flags),
        generate_s=times[0],
        prepare_cpu_s=times[1],
        prepare_wall_s=times[2],
        shop_mb=sum(file.stat().st_size for file in path.iterdir()) / 1e6,
        steps_per_s_new_queries=new,
        steps_per_s_known_queries=known,
        search_share=share,
        search_ms=1e3 * sum(long_times) / len(long_times),
        search_p99_ms=1e3 * sorted(long_times)[int(0.99 * len(long_times))],
        short_search_ms=1e3 * sum(search_times(shop, short)) / len(short),
        environment_kb=environment_memory(shop, path, queries),
        open_process_mb=opened_kb / 1e3,
        process_mb=used_kb / 1e3,
        restore_us=restore_time(shop, path, queries),
        reset_us=reset_time(shop, path),
    )


def make_shop(num_products: int, folder: Path) -> tuple[float | None, float | None, float | None]:
    """Seconds to generate, and CPU and wall seconds to prepare; None for what was there already."""
    source, target = folder / f"catalogue-{num_products}", folder / f"shop-{num_products}"
    if (target / "manifest.json").is_file():
        return None, None, None
    start = time.process_time()
    if not source.is_dir():
        generate_catalogue(source, num_products, seed=1)
    generated = time.process_time() - start
    tag, name = choose_nouns(None, "builtin")
    files = [source / f"items_{part}.json" for part in ("shuffle", "ins_v2", "human_ins")]
    start, wall = time.process_time(), time.monotonic()
    prepare(Sources(files[0], files[1], files[2], tag, name), target, lambda step, share: None)
    return generated, time.process_time() - start, time.monotonic() - wall


def new_queries(shop: Shop, draw: random.Random) -> Iterator[str]:
    """Texts that were never given before: words of an instruction in another order."""
    goals = shop.goals("synthetic")
    given: set[str] = set()
    while True:
        words = goals[draw.randrange(len(goals))].instruction_text.split()
        draw.shuffle(words)
        query = " ".join(words[: draw.randint(4, len(words))])
        if query not in given:
            given.add(query)
            yield query


def environment(shop: Shop) -> WebShopEnv:
    return WebShopEnv(lambda folder, content_hash: shop)


def task(goal: Goal, shop: Shop, folder: Path) -> Task:
    name = f"webshop/train/{goal.kind}/{goal.index}"
    return Task(name, "webshop", "train", "all", str(folder), shop.content_hash)


def walk(
    shop: Shop, folder: Path, queries: Iterator[str], draw: random.Random, num_steps: int
) -> tuple[float, float]:
    """Steps per CPU second, resets included, and the share of steps that search."""
    goals = shop.goals("synthetic")
    env = environment(shop)
    tasks = [task(goals[draw.randrange(len(goals))], shop, folder) for _ in range(num_steps)]
    texts = [next(queries) for _ in range(num_steps)]
    num_searches = done = 0
    start = time.process_time()
    while done < num_steps:
        seen = env.reset(tasks[done])
        for step in range(STEPS_PER_EPISODE):
            clicks = [action for action in seen.admissible if action.startswith("click[")]
            if step % (CLICKS_PER_SEARCH + 1) == 0 or not clicks:
                seen = env.step(f"search[{texts[done % num_steps]}]")
                num_searches += 1
            else:
                seen = env.step(draw.choice(clicks))
            done += 1
            if seen.is_terminated:
                break
    return done / (time.process_time() - start), num_searches / done


def search_times(shop: Shop, queries: list[str]) -> list[float]:
    return [timed(lambda query=query: shop.search(query)) for query in queries]


def timed(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def environment_memory(shop: Shop, folder: Path, queries: Iterator[str]) -> float:
    """KB of one more environment in the middle of an episode, with its observation."""
    goals = shop.goals("synthetic")
    tasks = [task(goals[place % len(goals)], shop, folder) for place in range(520)]
    envs = [environment(shop) for _ in range(20)]
    for place, env in enumerate(envs):
        play(env, tasks[place], next(queries))
    tracemalloc.start()
    texts = [next(queries) for _ in range(500)]
    before = tracemalloc.get_traced_memory()[0]
    for place in range(500):
        env = environment(shop)
        play(env, tasks[20 + place], texts[place])
        envs.append(env)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / 500 / 1e3


def play(env: WebShopEnv, of_task: Task, query: str) -> None:
    """Search and open the first product, if any."""
    env.reset(of_task)
    seen = env.step(f"search[{query}]")
    links = [action for action in seen.admissible if action.startswith("click[b0")]
    env.step(links[0] if links else click("back to search"))


def process_memory(folder: Path) -> tuple[int, int]:
    """Private KB that opening the shop adds to a process, and with 200 searches."""
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, str(folder)], capture_output=True, text=True, check=True
    )
    opened, used = done.stdout.split()
    return int(opened), int(used)


def restore_time(shop: Shop, folder: Path, queries: Iterator[str]) -> float:
    """Microseconds of `restore` between two states of one episode."""
    env = environment(shop)
    play(env, task(shop.goals("synthetic")[0], shop, folder), next(queries))
    first = env.snapshot()
    env.step(f"search[{next(queries)}]")
    second = env.snapshot()
    start = time.process_time()
    for _ in range(20_000):
        env.restore(first)
        env.restore(second)
    return (time.process_time() - start) / 40_000 * 1e6


def reset_time(shop: Shop, folder: Path) -> float:
    """Microseconds of `reset`, each to another goal."""
    env = environment(shop)
    goals = shop.goals("synthetic")
    tasks = [task(goals[place % len(goals)], shop, folder) for place in range(2_000)]
    return timed(lambda: [env.reset(each) for each in tasks]) / len(tasks) * 1e6


def headline(found: list[Figures]) -> dict[str, float]:
    """The figures that have a target."""
    first, largest = found[0], found[-1]
    flat = {
        "steps_per_s_new_queries_1k": first.steps_per_s_new_queries,
        "environment_kb": max(figures.environment_kb for figures in found),
        "restore_us": max(figures.restore_us for figures in found),
    }
    if largest.num_products == SIZES[-1] and largest.prepare_wall_s is not None:
        flat["prepare_100k_wall_s"] = largest.prepare_wall_s
    return flat


def report(found: list[Figures], flat: dict[str, float]) -> None:
    for name in asdict(found[0]):
        values = [getattr(figures, name) for figures in found]
        cells = ("-" if value is None else f"{value:,.4g}" for value in values)
        print(f"{name:<28}" + "".join(f"{cell:>14}" for cell in cells))
    print()
    for name, (sense, target) in TARGETS.items():
        if name in flat:
            is_met = flat[name] >= target if sense == ">=" else flat[name] <= target
            print(
                f"{name:<28}{flat[name]:>12.4g}  {sense} {target:g}  {'ok' if is_met else 'MISSED'}"
            )


if __name__ == "__main__":
    sys.exit(main())
