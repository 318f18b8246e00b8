"""The door of the dashboard: asks for the API's token where the API asks for one.

The token lives in the browser session only; it is in no URL and no cache. Answers of the API are
shared by all sessions, which is sound because every valid token may read everything.
"""

from __future__ import annotations

import time

import streamlit as st

from backend.client import ApiError
from dashboard.data import TOKEN, client
from dashboard.view import format

CHECK_S = 60.0
"""A session is asked again whether its token is still valid at most this often."""
_CHECKED = "token_checked_at"


def require() -> None:
    """Go on with a valid token, or none where none is asked for; else show the form and stop.

    While the API does not answer the pages go on with what they have.
    """
    if time.monotonic() - st.session_state.get(_CHECKED, -CHECK_S) < CHECK_S:
        return
    try:
        client().whoami()
    except ApiError as error:
        if error.status in (401, 403, 429):
            _ask(error)
            st.stop()
        return
    st.session_state[_CHECKED] = time.monotonic()


def _ask(error: ApiError) -> None:
    st.title("SERO Lab")
    st.write("This server asks for a token. Make one on it with `sero token create NAME`.")
    with st.form("token", width=480):
        token = st.text_input("Token", type="password", placeholder="sero_…")
        if st.form_submit_button("Open", type="primary") and token:
            st.session_state[TOKEN] = token.strip()
            st.session_state.pop(_CHECKED, None)
            st.rerun()
    if st.session_state.get(TOKEN):
        st.error(format.plain(error.message), icon=":material/key_off:")
