"""Field errors: paths as the user wrote them, and what is allowed in words."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from backend.validation import describe, field_errors, merge


class Cat(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Literal["cat"] = "cat"
    lives: int = Field(default=9, ge=1, le=9)


class Dog(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Literal["dog"] = "dog"
    tricks: tuple[Literal["sit", "roll"], ...] = Field(default=("sit",), min_length=1)


class Owner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    pet: Annotated[Cat | Dog, Field(discriminator="name")] = Cat()
    friend: Annotated[Cat | Dog | None, Field()] = None
    age: float | None = Field(default=None, gt=0)
    is_kind: bool = True

    @model_validator(mode="after")
    def _check(self) -> Owner:
        if self.age == 13:
            raise ValueError("pet.lives: unlucky; allowed: another age")
        return self


def errors(data: dict[str, object]) -> dict[str, str | None]:
    with pytest.raises(ValidationError) as caught:
        Owner.model_validate(data)
    found = field_errors(caught.value.errors(), data, Owner.model_json_schema())
    return {error.field: error.allowed for error in found}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"pet": {"name": "cat", "lives": 12}}, {"pet.lives": "an integer >= 1 and <= 9"}),
        ({"pet": {"name": "dog", "lives": 1}}, {"pet.lives": "the keys name, tricks"}),
        ({"pet": {"name": "dog", "tricks": ["sit", "fly"]}}, {"pet.tricks.1": "'sit', 'roll'"}),
        (
            {"pet": {"name": "dog", "tricks": []}},
            {"pet.tricks": "a list of 'sit', 'roll', at least 1"},
        ),
        ({"age": -1}, {"age": "a number > 0 or null"}),
        ({"is_kind": "maybe"}, {"is_kind": "true or false"}),
        ({"pett": 1}, {"pett": "the keys pet, friend, age, is_kind"}),
        ({"age": 13}, {"pet.lives": "another age"}),
    ],
)
def test_each_error_names_its_field(
    data: dict[str, object], expected: dict[str, str | None]
) -> None:
    assert errors(data) == expected


def test_an_unknown_member_of_a_union_lists_the_known_ones() -> None:
    found = errors({"pet": {"name": "cow"}})
    assert list(found) == ["pet"]
    assert "the keys name" in str(found["pet"])


def test_the_message_shows_what_was_given() -> None:
    data = {"pet": {"name": "cat", "lives": 12}}
    with pytest.raises(ValidationError) as caught:
        Owner.model_validate(data)
    (error,) = field_errors(caught.value.errors(), data)
    assert error.message.endswith("(got 12)")
    assert error.allowed is None


def test_describe_says_nothing_about_unknown_places() -> None:
    assert describe(Owner.model_json_schema(), ("pet", "wings", "left"), {}) is None


def test_merge_takes_nested_and_dotted_keys() -> None:
    base = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    changes = {"a.c.d": 5, "a": {"b": 4}, "f.g": 6, "e": None}
    assert merge(base, changes) == {"a": {"b": 4, "c": {"d": 5}}, "e": None, "f": {"g": 6}}
    assert base == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert merge({"sero": None}, {"sero.horizon": 1}) == {"sero": {"horizon": 1}}
