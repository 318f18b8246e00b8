"""The typed difference of two configs."""

from __future__ import annotations

from backend.diff import changes, flatten
from backend.schemas import Config


def test_keys_are_dotted_and_empty_tables_stay() -> None:
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}


def test_every_kind_of_change() -> None:
    before: Config = {"lr": 0.1, "env": {"name": "x", "old": "y"}, "name": "a", "same": [1, 2]}
    after: Config = {"lr": 0.2, "env": {"name": "x", "new": True}, "name": "b", "same": [1, 2]}
    found = [(c.key, c.change, c.type, c.before, c.after) for c in changes(before, after)]
    assert found == [
        ("env.new", "added", "true or false", None, True),
        ("env.old", "removed", "text", "y", None),
        ("lr", "changed", "number", 0.1, 0.2),
    ]


def test_an_absent_section_is_its_keys() -> None:
    section: Config = {"sero": {"beta": 1, "root": {"rule": "uniform"}}}
    nothing: Config = {"sero": None}
    assert [(c.key, c.change) for c in changes(section, nothing)] == [
        ("sero.beta", "removed"),
        ("sero.root.rule", "removed"),
    ]
    assert [c.change for c in changes(nothing, section)] == ["added", "added"]
    assert [c.key for c in changes({"x": None}, {"x": 1})] == ["x"]
