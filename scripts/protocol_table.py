"""The table "what protocol = verl-agent changes" of docs/methods.md, made from the code.

`python scripts/protocol_table.py` writes it between its markers; a test compares the two.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from sero_core.config import RunConfig
from sero_core.credit import ESTIMATORS
from sero_core.protocol import flatten, verl_agent

DOCS = Path(__file__).parents[1] / "docs" / "methods.md"
BEGIN, END = "<!-- protocol table: begin -->", "<!-- protocol table: end -->"
ENVS = ("alfworld", "webshop")
Place = tuple[str, str]


def table() -> str:
    """One row per field and pair of values: ours, verl-agent's, and where they differ so."""
    names = [str(member.model_fields["name"].default) for member in ESTIMATORS]
    places: defaultdict[tuple[str, str, str], list[Place]] = defaultdict(list)
    known: defaultdict[str, list[Place]] = defaultdict(list)
    for name in names:
        config = RunConfig.model_validate({"estimator": {"name": name}})
        ours, own = flatten(config.model_dump(mode="json")), flatten(config.estimator.defaults)
        for env in ENVS:
            for field, value in (flatten(verl_agent(name, env)) | own).items():
                known[field].append((name, env))
                if ours[field] != value:
                    places[(field, _text(ours[field]), _text(value))].append((name, env))
    order = list(known)
    rows = sorted(places.items(), key=lambda row: order.index(row[0][0]))
    lines = ["| field | ours | verl-agent | for |", "|---|---|---|---|"]
    lines += [
        f"| `{field}` | {before} | {after} | {_where(where, known[field])} |"
        for (field, before, after), where in rows
    ]
    return "\n".join(lines)


def with_table(text: str) -> str:
    """`text` with the table between its markers made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _where(places: list[Place], known: list[Place]) -> str:
    """`places` in words: estimators, per environment where these differ."""
    words: dict[str, str] = {}
    for env in ENVS:
        here = [name for name, where in places if where == env]
        everyone = [name for name, where in known if where == env]
        if here:
            words[env] = ", ".join(here) if len(here) < len(ESTIMATORS) else "all"
            if len(here) == len(everyone) < len(ESTIMATORS):
                words[env] = "all that have it" if len(here) > 2 else ", ".join(here)
    if len(words) == len(ENVS) and len(set(words.values())) == 1:
        return words[ENVS[0]]
    return "; ".join(f"{env}: {names}" for env, names in words.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    DOCS.write_text(with_table(DOCS.read_text()))
    print(f"{DOCS}: {table().count(chr(10)) - 1} rows")
