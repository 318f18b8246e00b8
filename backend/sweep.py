"""From a sweep request to the configs of its runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

from pydantic import JsonValue
from sqlalchemy import Connection

from backend import presets
from backend.errors import InvalidRequest
from backend.schemas import MAX_RUNS, Config, FieldError, SweepRequest
from backend.settings import Settings
from backend.submission import Submission, bounds_of, check, check_bounds, parent_config, wrong
from backend.validation import merge
from sero_core.config import RunConfig

MAX_NAME = 80


@dataclass(frozen=True, slots=True)
class Combination:
    """One run of a sweep."""

    config: RunConfig
    values: Config


def expand(
    connection: Connection, request: SweepRequest, settings: Settings
) -> tuple[Submission, list[Combination]]:
    """The checked base and every run, seeds innermost.

    Errors: `InvalidRequest` naming each wrong field, and values that make a config wrong.
    """
    base = check(connection, request.base, settings)
    below = presets.base_config(
        request.base, settings.configs_dir, parent_config(connection, request.base)
    )
    data = merge(below, request.base.overrides)
    seeds = request.seeds or [base.config.seed]
    count = len(seeds)
    for key, values in request.grid.items():
        if not values:
            raise wrong(f"grid.{key}", "no values to try", "a list of at least one")
        if key in ("seed", "name"):
            raise wrong(f"grid.{key}", f"the {key} is not a grid key", "`seeds` for seeds")
        count *= len(values)
    if count > MAX_RUNS:
        raise wrong("grid", f"{count} runs are too many", f"at most {MAX_RUNS}")
    found: list[Combination] = []
    problems: list[FieldError] = []
    for values in product(*request.grid.values()):
        chosen = dict(zip(request.grid, values, strict=True))
        for seed in seeds:
            name = run_name(request.name, chosen, seed)
            try:
                config = presets.parse(merge(data, {**chosen, "seed": seed, "name": name}))
                check_bounds(config.model_dump(mode="json"), bounds_of(settings))
            except InvalidRequest as error:
                problems += [_grid_problem(problem, chosen) for problem in error.fields]
                break  # the other seeds would say the same
            found.append(Combination(config, chosen))
    if problems:
        unique = list({(p.field, p.message): p for p in problems}.values())
        raise InvalidRequest(f"the sweep has {len(unique)} wrong value(s)", unique)
    return base, found


def run_name(sweep: str, values: dict[str, JsonValue], seed: int) -> str:
    """`<sweep> beta-0.5 s1`, shortened in the middle where it would be too long."""
    parts = [f"{key.rpartition('.')[2]}-{_word(value)}" for key, value in values.items()]
    tail = f" s{seed}"
    middle = " ".join(["", *parts])[: MAX_NAME - len(sweep) - len(tail)].rstrip()
    return f"{sweep}{middle}{tail}"


def _word(value: JsonValue) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", str(value)).strip("_") or "_"


def _grid_problem(problem: FieldError, chosen: dict[str, JsonValue]) -> FieldError:
    """Name the grid's key where the wrong field is one of it."""
    for key in chosen:
        if problem.field == key or problem.field.startswith(f"{key}."):
            return problem.model_copy(update={"field": f"grid.{problem.field}"})
    return problem.model_copy(update={"field": f"base.{problem.field}"})
