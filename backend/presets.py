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
    """Every `*.toml` of the folder and of those in it, by name (`sero_demo`, `paper/…`).

    Errors: pydantic.ValidationError, TOMLDecodeError.
    """
    return [_load(name, path) for name, path in _files(folder).items()]


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
    files = _files(folder)
    if name in files:
        return _load(name, files[name])
    names = ", ".join(files)
    problem = FieldError(field="preset", message=f"there is no preset {name!r}", allowed=names)
    raise InvalidRequest(f"there is no preset {name!r}", [problem])


def _files(folder: Path) -> dict[str, Path]:
    """By name: the path below the folder without its ending. Top level first, else by name."""
    found = {
        path.relative_to(folder).as_posix().removesuffix(".toml"): path
        for path in folder.rglob("*.toml")
    }
    return dict(sorted(found.items(), key=lambda item: ("/" in item[0], item[0])))


def _load(name: str, path: Path) -> Preset:
    text = path.read_text()
    overrides = cast(Config, tomllib.loads(text))
    comments: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        comments.append(line.removeprefix("#").strip())
    return Preset(
        name=name,
        description=" ".join(comments),
        overrides=overrides,
        config=RunConfig.model_validate(overrides).model_dump(mode="json"),
    )
