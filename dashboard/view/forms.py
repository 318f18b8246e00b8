"""The config's JSON Schema as a form: sections, fields, choices. No field is written by hand.

Understands what pydantic emits for the config classes: `$ref`, `anyOf` with `null` (an optional
section or value), `oneOf` with a discriminator (a union of parts), `enum`, `const`, arrays
of enums and of whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

Kind = Literal["bool", "int", "float", "text", "choice", "choices", "ints", "const"]
Json = Mapping[str, object]
Path = tuple[str, ...]


class FormError(ValueError):
    """The schema has something that this form cannot draw; names the field."""


@dataclass(frozen=True, slots=True)
class Field:
    """One input. `bounds` says in words what is allowed; the API is the judge."""

    path: Path
    kind: Kind
    help: str
    default: object
    choices: tuple[str, ...] = ()
    bounds: str = ""
    is_optional: bool = False

    @property
    def dotted(self) -> str:
        return ".".join(self.path)

    @property
    def label(self) -> str:
        return self.path[-1].replace("_", " ")


@dataclass(frozen=True, slots=True)
class Section:
    """A nested model. `variants` (more than one) = a union told apart by its `name` field."""

    path: Path
    help: str
    fields: tuple[Field, ...]
    sections: tuple[Section, ...]
    is_optional: bool = False
    variants: tuple[tuple[str, Section], ...] = ()
    default_variant: str = ""

    @property
    def dotted(self) -> str:
        return ".".join(self.path)

    @property
    def title(self) -> str:
        return self.path[-1].replace("_", " ") if self.path else "run"


def build(schema: Json) -> Section:
    """The form of a whole config. Errors: `FormError` naming the field that cannot be drawn."""
    return _section(schema, schema, (), False)


def all_fields(section: Section) -> Iterator[Field]:
    """Every input of a form, those of all variants included."""
    yield from section.fields
    for child in section.sections:
        yield from all_fields(child)
    for _, variant in section.variants:
        yield from all_fields(variant)


def collect(section: Section, values: Mapping[str, object], base: Json) -> dict[str, object]:
    """The config that the inputs say. `values` by dotted path; a missing one comes from `base`.

    An optional section is on when `values["<path>?"]` is true (missing: when `base` has it); the
    variant of a union is `values["<path>.name"]`.
    """
    result: dict[str, object] = {}
    for field in section.fields:
        given = values.get(field.dotted, lookup(base, field.path, field.default))
        if field.kind == "int" and isinstance(given, float) and given.is_integer():
            given = int(given)
        if field.kind == "choice" and isinstance(field.default, int) and isinstance(given, str):
            given = int(given)  # the inputs show numbers to choose from as text
        if field.kind == "choices":
            given = list(cast("list[str]", given))
        if field.kind == "ints" and isinstance(given, str):
            given = [_whole(part) for part in given.split(",") if part.strip()]
        result[field.path[-1]] = given
    for child in section.sections:
        inside = lookup(base, child.path, None)
        is_on = bool(values.get(f"{child.dotted}?", inside is not None))
        if child.is_optional and not is_on:
            result[child.path[-1]] = None
            continue
        chosen = variant(child, values, base)
        result[child.path[-1]] = collect(chosen, values, base)
    return result


def variant(section: Section, values: Mapping[str, object], base: Json) -> Section:
    """The chosen member of a union; a section that is no union is itself."""
    if not section.variants:
        return section
    members = dict(section.variants)
    name = values.get(f"{section.dotted}.name", lookup(base, (*section.path, "name"), None))
    return members.get(str(name), members[section.default_variant])


def differences(config: Json, base: Json, path: Path = ()) -> list[tuple[str, object, object]]:
    """(dotted key, value in `base`, value in `config`) where they differ, in config order."""
    result: list[tuple[str, object, object]] = []
    for key in dict.fromkeys([*config, *base]):
        ours, theirs = config.get(key), base.get(key)
        here = (*path, key)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            result += differences(cast(Json, ours), cast(Json, theirs), here)
        elif _plain(ours) != _plain(theirs):
            result.append((".".join(here), theirs, ours))
    return result


def without_defaults(config: Json, defaults: Json) -> dict[str, object]:
    """What a config file has to say: the keys whose value is not the default, without `None`.

    Another protocol or estimator brings defaults of its own, so then every key is said; so is every
    key of a part whose `name` is not the default one.
    """
    moving = (("protocol",), ("estimator", "name"))
    if any(lookup(config, path, None) != lookup(defaults, path, None) for path in moving):
        return _said(config, {})
    return _said(config, defaults)


def _said(config: Json, defaults: Json) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in config.items():
        base = defaults.get(key)
        if isinstance(value, Mapping):
            is_same = isinstance(base, Mapping) and base.get("name") == value.get("name")
            inner = _said(cast(Json, value), cast(Json, base) if is_same else {})
            if inner or not isinstance(base, Mapping):
                result[key] = inner
        elif value is not None and _plain(value) != _plain(base):
            result[key] = value
    return result


def lookup(data: Json, path: Path, default: object) -> object:
    """The value at a path, or `default` where a part is missing."""
    here: object = data
    for part in path:
        if not isinstance(here, Mapping) or part not in here:
            return default
        here = cast(Json, here)[part]
    return here


def _section(root: Json, node: Json, path: Path, is_optional: bool, help: str = "") -> Section:
    fields: list[Field] = []
    sections: list[Section] = []
    properties = cast("Mapping[str, Json]", node.get("properties", {}))
    for name, raw in properties.items():
        here = (*path, name)
        options, is_nullable = _options(root, raw)
        text = str(raw.get("description", ""))
        if all(option.get("type") == "object" for option in options):
            sections.append(_part(root, options, here, is_nullable, text, raw.get("default")))
        else:
            fields.append(_field(root, raw, options[0], here, is_nullable))
    return Section(
        path=path,
        help=help or _first_sentence(str(node.get("description", ""))),
        fields=tuple(fields),
        sections=tuple(sections),
        is_optional=is_optional,
    )


def _part(
    root: Json, options: list[Json], path: Path, is_optional: bool, help: str, default: object
) -> Section:
    members = [_section(root, option, path, is_optional, help) for option in options]
    if len(members) == 1:
        return members[0]
    named = [(_constant(option), member) for option, member in zip(options, members, strict=True)]
    first = str(default["name"]) if isinstance(default, Mapping) else named[0][0]
    return Section(path, help, (), (), is_optional, tuple(named), first)


def _constant(option: Json) -> str:
    properties = cast("Mapping[str, Json]", option.get("properties", {}))
    return str(properties["name"]["const"])


def _options(root: Json, raw: Json) -> tuple[list[Json], bool]:
    """The alternatives of a property with references resolved, and whether `null` is one."""
    listed = raw.get("anyOf") or raw.get("oneOf") or [raw]
    options = [_resolve(root, option) for option in cast("list[Json]", listed)]
    nested: list[Json] = []
    for option in options:
        inner = option.get("oneOf")
        members = [_resolve(root, one) for one in cast("list[Json]", inner)] if inner else [option]
        nested += members
    values = [option for option in nested if option.get("type") != "null"]
    return values, len(values) < len(nested)


def _resolve(root: Json, node: Json) -> Json:
    reference = node.get("$ref")
    if reference is None:
        return node
    definitions = cast("Mapping[str, Json]", root["$defs"])
    return definitions[str(reference).rpartition("/")[2]]


def _field(root: Json, raw: Json, node: Json, path: Path, is_optional: bool) -> Field:
    kind, choices = _kind(root, node, path)
    return Field(
        path=path,
        kind=kind,
        help=str(raw.get("description", "")),
        default=node["const"] if kind == "const" else raw.get("default"),
        choices=choices,
        bounds=_bounds({**node, **raw}),
        is_optional=is_optional,
    )


def _kind(root: Json, node: Json, path: Path) -> tuple[Kind, tuple[str, ...]]:
    if "const" in node:
        return "const", ()
    if "enum" in node:
        return "choice", tuple(str(item) for item in cast("list[object]", node["enum"]))
    if node.get("type") == "array":
        items = _resolve(root, cast(Json, node["items"]))
        if "enum" in items:
            return "choices", tuple(str(item) for item in cast("list[object]", items["enum"]))
        if items.get("type") == "integer":
            return "ints", ()
    simple: dict[object, Kind] = {
        "boolean": "bool",
        "integer": "int",
        "number": "float",
        "string": "text",
    }
    kind = simple.get(node.get("type"))
    if kind is None:
        raise FormError(f"{'.'.join(path)}: the form cannot draw {dict(node)!r}")
    return kind, ()


def _whole(text: str) -> int | str:
    """A number of a list as typed; what is none stays text, for the API to name."""
    text = text.strip()
    return int(text) if text.removeprefix("-").isdecimal() else text


def _bounds(node: Json) -> str:
    words = {
        "minimum": "at least {}",
        "exclusiveMinimum": "above {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "below {}",
        "maxLength": "at most {} characters",
        "minItems": "at least {} chosen",
    }
    return ", ".join(text.format(node[key]) for key, text in words.items() if key in node)


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
