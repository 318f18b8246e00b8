"""The named methods of `configs/`, and how a submit request becomes a run config."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import cast

from pydantic import JsonValue, ValidationError

from backend.errors import InvalidRequest
from backend.schemas import Config, FieldError, Preset, SubmitRequest
from backend.validation import field_errors, merge
from sero_core.config import RunConfig

SCHEMA: Config = RunConfig.model_json_schema()


def load_presets(folder: Path) -> list[Preset]:
    """Every `*.toml` of the folder, by name. Errors: pydantic.ValidationError, TOMLDecodeError."""
    return [_load(path) for path in sorted(folder.glob("*.toml"))]


def to_config(request: SubmitRequest, folder: Path) -> RunConfig:
    """The config that a request asks for. Errors: `InvalidRequest` naming each wrong field."""
    if (request.config is None) == (request.preset is None):
        problem = FieldError(
            field="config", message="give either a config or a preset", allowed="one of the two"
        )
        raise InvalidRequest("a run needs a config or a preset", [problem])
    data: dict[str, JsonValue] = {} if request.config is None else request.config
    if request.preset is not None:
        data = _preset(request.preset, folder).overrides
    data = merge(data, request.overrides)
    if request.name is not None:
        data = {**data, "name": request.name}
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        fields = field_errors(error.errors(), data, SCHEMA)
        raise InvalidRequest(f"the config has {len(fields)} wrong field(s)", fields) from None


def _preset(name: str, folder: Path) -> Preset:
    for preset in load_presets(folder):
        if preset.name == name:
            return preset
    names = ", ".join(path.stem for path in sorted(folder.glob("*.toml")))
    problem = FieldError(field="preset", message=f"there is no preset {name!r}", allowed=names)
    raise InvalidRequest(f"there is no preset {name!r}", [problem])


def _load(path: Path) -> Preset:
    text = path.read_text()
    overrides = cast(Config, tomllib.loads(text))
    comments: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        comments.append(line.removeprefix("#").strip())
    return Preset(
        name=path.stem,
        description=" ".join(comments),
        overrides=overrides,
        config=RunConfig.model_validate(overrides).model_dump(mode="json"),
    )
