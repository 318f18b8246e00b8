"""The submit form comes from the schema: every field of the config is an input, none by hand."""

from __future__ import annotations

import tomllib
import types
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from dashboard.view import forms, toml
from sero_core.config import RunConfig

FORM = forms.build(RunConfig.model_json_schema())
DEFAULTS = RunConfig().model_dump(mode="json")


def leaves(model: type[BaseModel], path: str = "") -> set[str]:
    """Dotted names of all plain fields of a pydantic model, from its classes (not its schema)."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        nested = [part for part in parts(field.annotation) if is_model(part)]
        here = f"{path}{name}"
        if nested:
            for part in nested:
                found |= leaves(part, f"{here}.")
        else:
            found.add(here)
    return found


def parts(annotation: object) -> list[object]:
    if typing.get_origin(annotation) is typing.Annotated:
        return parts(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [leaf for part in typing.get_args(annotation) for leaf in parts(part)]
    return [annotation]


def is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def test_the_form_covers_every_field_of_the_config() -> None:
    assert {field.dotted for field in forms.all_fields(FORM)} == leaves(RunConfig)


def test_an_untouched_form_is_the_default_config() -> None:
    config = forms.collect(FORM, {}, DEFAULTS)
    assert RunConfig.model_validate(config) == RunConfig()


def test_switching_an_optional_section_on_gives_its_defaults() -> None:
    config = RunConfig.model_validate(forms.collect(FORM, {"sero?": True}, DEFAULTS))
    assert config == RunConfig.model_validate({"sero": {}})


def test_switching_a_section_off() -> None:
    base = RunConfig.model_validate({"sero": {}}).model_dump(mode="json")
    assert forms.collect(FORM, {"sero?": False}, base)["sero"] is None
    assert forms.collect(FORM, {}, base)["sero"] is not None


def test_a_union_is_told_apart_by_name() -> None:
    values = {"sero?": True, "sero.oracle.name": "planner"}
    config = RunConfig.model_validate(forms.collect(FORM, values, DEFAULTS))
    assert config.sero is not None
    assert config.sero.oracle.name == "planner"


def test_inputs_replace_values() -> None:
    values = {"rollout.num_tasks": 3.0, "optimizer.lr": 0.5, "name": "mine"}
    config = RunConfig.model_validate(forms.collect(FORM, values, DEFAULTS))
    assert (config.rollout.num_tasks, config.optimizer.lr, config.name) == (3, 0.5, "mine")
    changed = forms.differences(forms.collect(FORM, values, DEFAULTS), DEFAULTS)
    assert {key for key, _, _ in changed} == set(values)


def test_a_list_of_numbers_is_written_with_commas() -> None:
    values = {"evaluation.seeds": "3, 1,-2"}
    assert forms.collect(FORM, values, DEFAULTS)["evaluation"]["seeds"] == [3, 1, -2]  # pyright: ignore
    wrong = forms.collect(FORM, {"evaluation.seeds": "3, x"}, DEFAULTS)
    with pytest.raises(ValidationError, match="seeds"):
        RunConfig.model_validate(wrong)


def test_help_bounds_and_choices_come_from_the_schema() -> None:
    by_name = {field.dotted: field for field in forms.all_fields(FORM)}
    assert by_name["rollout.num_tasks"].bounds == "at least 1, at most 4096"
    assert by_name["sampling.temperature"].bounds == "above 0, at most 5"
    assert by_name["rollout.num_tasks"].help == "Tasks per iteration"
    assert by_name["env.engine"].choices == ("native", "reference")
    assert by_name["estimator.name"].kind == "const"


def test_something_that_cannot_be_drawn_is_an_error_that_names_it() -> None:
    schema = {"properties": {"odd": {"type": "array", "items": {"type": "object"}}}}
    with pytest.raises(forms.FormError, match="odd"):
        forms.build(schema)


def test_the_toml_file_says_only_what_is_not_default() -> None:
    values = {"rollout.num_tasks": 3, "sero?": True}
    config = forms.collect(FORM, values, DEFAULTS)
    text = toml.dumps(forms.without_defaults(config, DEFAULTS))
    assert RunConfig.model_validate(tomllib.loads(text)) == RunConfig.model_validate(config)
    assert "group_size" not in text
    assert "num_tasks = 3" in text


@pytest.mark.parametrize(
    ("start", "values"),
    [
        (
            {"protocol": "verl-agent"},
            {"estimator.statistics": "episodes", "loss.entropy_coef": 0.0},
        ),
        ({"estimator": {"name": "dapo"}}, {"loss.clip_high": 0.2, "rollout.max_rounds": 1}),
        ({"estimator": {"name": "hgpo"}}, {"estimator.penalty": "return"}),
    ],
)
def test_the_toml_file_keeps_defaults_that_the_method_would_change(
    start: dict[str, object], values: dict[str, object]
) -> None:
    base = RunConfig.model_validate(start).model_dump(mode="json")
    config = forms.collect(FORM, values, base)
    text = toml.dumps(forms.without_defaults(config, DEFAULTS))
    back = RunConfig.model_validate(tomllib.loads(text))
    assert back == RunConfig.model_validate(config)
    assert back != RunConfig.model_validate(start)


SCALARS = st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text()
TABLES = st.recursive(
    st.dictionaries(st.text(min_size=1), SCALARS | st.lists(SCALARS), max_size=4),
    lambda inner: st.dictionaries(st.text(min_size=1), inner | SCALARS, max_size=3),
    max_leaves=12,
)


@given(TABLES)
def test_toml_round_trip(data: dict[str, object]) -> None:
    assert tomllib.loads(toml.dumps(data)) == data
