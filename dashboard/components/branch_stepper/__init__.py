"""The branch stepper: a component v2 that holds a whole branch; steps happen in the browser.

A step is a redraw in JavaScript (no rerun, no HTTP). The step lives in the URL (`step`, and `tok`
for the token numbers); Python hears only about jumps to another branch.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.view.branch import StepperData

_HERE = Path(__file__).parent
_SCRIPT = "\n".join(
    (_HERE / name).read_text(encoding="utf-8") for name in ("core.js", "panes.js", "stepper.js")
)

_component = st.components.v2.component(
    "sero_branch_stepper",
    html='<div class="stepper">\n</div>',
    css=(_HERE / "stepper.css").read_text(encoding="utf-8"),
    js=_SCRIPT,
)


def branch_stepper(data: StepperData, key: str) -> str | None:
    """Show a branch. Returns the id of another branch when the user asked to go there (n, p)."""
    result = _component(key=key, data=data, on_go_change=lambda: None)
    return result.go
