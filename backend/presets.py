"""The named methods of `configs/`, and how a submit request becomes a run config."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from backend.errors import InvalidRequest
from backend.schemas import Config, FieldError, Preset, SubmitRequest
from backend.validation import field_errors, merge
from sero_core.config import RunConfig

SCHEMA: Config = RunConfig.model_json_schema()


def load_presets(folder: Path) -> list[Preset]:
    """Every `*.toml` of the folder, by name. Errors: pydantic.ValidationError, TOMLDecodeError."""
    return [_load(path) for path in sorted(folder.glob("*.toml"))]


def to_config(request: SubmitRequest, folder: Path, parent: Config | None = None) -> RunConfig:
    """The config that a request asks for; `parent` is that of the run `from_run`.

    Errors: `InvalidRequest` naming each wrong field.
    """
    data = base_config(request, folder, parent)
    return parse(merge(data, request.overrides), name=request.name)


def base_config(request: SubmitRequest, folder: Path, parent: Config | None) -> Config:
    """The config below the request's overrides. Errors: `InvalidRequest`."""
    given = [request.config, request.preset, request.from_run]
    if sum(value is not None for value in given) != 1:
        problem = FieldError(
            field="config",
            message="give exactly one of a config, a preset and a run to clone",
            allowed="one of the three: config, preset, from_run",
        )
        raise InvalidRequest("a run needs a config, a preset or a run to clone", [problem])
    if request.preset is not None:
        return _preset(request.preset, folder).overrides
    return request.config if request.config is not None else parent or {}


def parse(data: Config, name: str | None = None, prefix: str = "") -> RunConfig:
    """Errors: `InvalidRequest` naming each wrong field, with `prefix` before it."""
    if name is not None:
        data = {**data, "name": name}
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        fields = field_errors(error.errors(), data, SCHEMA, prefix)
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
