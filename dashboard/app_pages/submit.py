"""New run: a form made from the config's JSON Schema, checked by the API as it is filled in."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import cast

import streamlit as st

from backend.client import ApiError
from backend.schemas import ConfigSchemaResponse, SubmitRequest
from dashboard import data, form, ui
from dashboard.state import RunState
from dashboard.view import format, forms, toml

DEFAULTS = "defaults"

st.title("New run")
known = ui.load(data.config_schema, "the config schema")
state = st.session_state


def _starting_points(known: ConfigSchemaResponse) -> dict[str, Mapping[str, object]]:
    """Presets, the plain defaults, and the run of `?from=12`."""
    points: dict[str, Mapping[str, object]] = {
        preset.name: preset.config for preset in known.presets
    }
    points[DEFAULTS] = known.defaults
    origin = RunState.parse({"id": st.query_params.get("from", "")}).id
    if origin is not None:
        points[f"run {origin}"] = ui.load(lambda: data.run(origin), f"run {origin}").config
    return points


points = _starting_points(known)
names = list(points)
clone = next((name for name in names if name.startswith("run ")), None)
preferred = clone or next((name for name in names if "sero" in name), names[0])
left, right = st.columns([5, 3], gap="large")
with left:
    start = st.selectbox(
        "Start from",
        names,
        index=names.index(preferred),
        key="preset" if clone is None else "from_preset",
        bind="query-params" if clone is None else None,
        help="A preset is one TOML file in configs/. Everything below can be changed.",
        width=360,
    )
    about = {preset.name: preset.description for preset in known.presets}.get(start, "")
    if about:
        st.caption(format.plain(about))
base = points[start]
layout = forms.build(known.json_schema)
config = forms.collect(layout, form.values(start), base)


def _validate(config: Mapping[str, object]) -> dict[str, str]:
    """Field -> what is wrong, from the API's dry run; empty = it would run."""
    request = SubmitRequest.model_validate({"config": config})
    try:
        data.client().validate_run(request)
    except ApiError as error:
        if error.status != 422:
            ui.show_error(error, "the check of this config")
            st.stop()
        given = {
            field.field.removeprefix("config."): field.message
            + (f" (allowed: {field.allowed})" if field.allowed else "")
            for field in error.fields
        }
        return given or {"config": error.message}
    return {}


def _submit(config: Mapping[str, object], text: str) -> None:
    """Queue the run. The key stays until the config changes, so a double click queues one run."""
    try:
        run = data.client().submit_run(
            SubmitRequest.model_validate({"config": config}), idempotency_key=state["submit_key"]
        )
    except ApiError as error:
        ui.show_error(error, "the submission")
        return
    data.store().forget()
    state["submitted"] = (text, run.id)


errors = _validate(config)
with left:
    form.draw(layout, config, base, errors, start)

text = json.dumps(config, sort_keys=True)
submitted = cast("tuple[str, int] | None", state.get("submitted"))
if "submit_key" not in state or (submitted is not None and submitted[0] != text):
    state["submit_key"] = uuid.uuid4().hex
    submitted = None
    state.pop("submitted", None)

with right, st.container(border=True):
    if submitted is not None:
        st.success(f"Queued as run #{submitted[1]}.", icon=":material/check_circle:")
        ui.link(
            "run",
            f"Open run #{submitted[1]}",
            RunState(id=submitted[1]),
            ":material/arrow_forward:",
        )
        st.caption("Change a field (the seed, say) to queue another one.")
    elif errors:
        count = len(errors)
        st.error(f"{count} wrong field{'s' if count > 1 else ''}", icon=":material/error:")
        for field, message in errors.items():
            st.markdown(f"`{field}`: {format.plain(message)}")
    else:
        st.markdown(":green[:material/check_circle: This config is valid.]")
    if submitted is None and st.button(
        "Queue 1 run",
        type="primary",
        disabled=bool(errors),
        icon=":material/send:",
        width="stretch",
    ):
        _submit(config, text)
        st.rerun()
    changes = forms.differences(config, base)
    st.markdown(f"**Changes against {format.plain(start)}**")
    if not changes:
        st.caption("None yet.")
    for key, before, after in changes:
        st.markdown(
            f"`{key}`: {format.plain(json.dumps(before))} → **{format.plain(json.dumps(after))}**"
        )
    st.markdown("**As a TOML file**")
    everything = st.toggle("with defaults", key="toml_all")
    shown = config if everything else forms.without_defaults(config, known.defaults)
    st.code(toml.dumps(shown) if shown else "# all defaults\n", language="toml", height=420)
