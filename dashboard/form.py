"""Draws a form (view/forms.py) with Streamlit widgets, whose values live under `cfg:` keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import streamlit as st

from dashboard.view import format
from dashboard.view.forms import Field, Json, Section, differences, lookup, variant

COLUMNS = 3


def values(version: str) -> dict[str, object]:
    """What the user has typed so far, by dotted path."""
    prefix = f"cfg:{version}:"
    return {
        str(key).removeprefix(prefix): value
        for key, value in st.session_state.items()
        if str(key).startswith(prefix)
    }


def draw(
    section: Section, config: Json, base: Json, errors: Mapping[str, str], version: str
) -> None:
    """The whole form: the run's own fields first, then one expander per section."""
    with st.container(border=True):
        _fields(section.fields, config, base, errors, version)
    for child in section.sections:
        _expander(child, config, base, errors, version)


def _expander(
    section: Section, config: Json, base: Json, errors: Mapping[str, str], version: str
) -> None:
    inside = lookup(config, section.path, None)
    before = lookup(base, section.path, None)
    ours = cast(Json, inside) if isinstance(inside, Mapping) else {}
    theirs = cast(Json, before) if isinstance(before, Mapping) else {}
    num_changes = len(differences(ours, theirs)) if (inside is None) == (before is None) else 1
    num_errors = sum(key.startswith(section.dotted + ".") for key in errors)
    label = f"**{section.title}**"
    if num_errors:
        label += f" · :red[{num_errors} wrong]"
    elif num_changes:
        label += f" · {num_changes} changed"
    elif section.is_optional and inside is None:
        label += " · off"
    with st.expander(label, key=f"section:{version}:{section.dotted}", expanded=num_errors > 0):
        if section.help:
            st.caption(format.plain(section.help))
        if section.is_optional:
            key = f"cfg:{version}:{section.dotted}?"
            if not st.toggle(f"Use {section.title}", value=inside is not None, key=key):
                return
        _body(section, config, base, errors, version)


def _body(
    section: Section, config: Json, base: Json, errors: Mapping[str, str], version: str
) -> None:
    if section.variants:
        names = [name for name, _ in section.variants]
        current = str(lookup(config, (*section.path, "name"), section.default_variant))
        st.selectbox(
            "which",
            names,
            index=names.index(current) if current in names else 0,
            key=f"cfg:{version}:{section.dotted}.name",
            width=320,
        )
    chosen = variant(section, values(version), config)
    _fields(chosen.fields, config, base, errors, version)
    for child in chosen.sections:
        st.markdown(f"**{child.title}**", help=format.plain(child.help) or None)
        _body(child, config, base, errors, version)


def _fields(
    fields: tuple[Field, ...], config: Json, base: Json, errors: Mapping[str, str], version: str
) -> None:
    shown = [field for field in fields if field.kind != "const"]
    for start in range(0, len(shown), COLUMNS):
        for column, field in zip(
            st.columns(COLUMNS, vertical_alignment="bottom"),
            shown[start : start + COLUMNS],
            strict=False,
        ):
            with column:
                _field(field, config, base, errors, version)


def _field(field: Field, config: Json, base: Json, errors: Mapping[str, str], version: str) -> None:
    value = lookup(config, field.path, field.default)
    preset = lookup(base, field.path, field.default)
    is_changed = value != preset
    label = f"**{field.label}** :material/edit:" if is_changed else field.label
    parts = [format.plain(field.help)] if field.help else []
    if field.bounds:
        parts.append(f"Allowed: {field.bounds}.")
    if is_changed:
        parts.append(f"Preset: `{preset}`.")
    hint = " ".join(parts) or None
    key = f"cfg:{version}:{field.dotted}"
    if field.kind == "bool":
        st.checkbox(label, value=bool(value), key=key, help=hint)
    elif field.kind == "int":
        st.number_input(label, value=int(cast(int, value)), step=1, key=key, help=hint)
    elif field.kind == "float":
        number = float(cast(float, value))
        step = 10.0 ** (-6 if 0 < abs(number) < 1e-3 else -2)
        st.number_input(label, value=number, step=step, format="%g", key=key, help=hint)
    elif field.kind == "choice":
        index = field.choices.index(str(value)) if str(value) in field.choices else 0
        st.selectbox(label, field.choices, index=index, key=key, help=hint)
    elif field.kind == "choices":
        chosen = [item for item in cast("list[str]", value) if item in field.choices]
        st.multiselect(label, field.choices, default=chosen, key=key, help=hint)
    elif field.kind == "ints":
        written = ", ".join(str(item) for item in cast("list[int]", value))
        st.text_input(label, value=written, key=key, help=hint)
    else:
        st.text_input(label, value="" if value is None else str(value), key=key, help=hint)
    if field.dotted in errors:
        st.markdown(f":red[:material/error: {format.plain(errors[field.dotted])}]")
