"""SERO Lab's dashboard: `streamlit run dashboard/streamlit_app.py`. Speaks only to the HTTP API."""

from __future__ import annotations

import streamlit as st

st.set_page_config(page_title="SERO Lab", page_icon=":material/alt_route:", layout="wide")

page = st.navigation(
    [
        st.Page("app_pages/runs.py", title="Runs", icon=":material/table_rows:", default=True),
        st.Page("app_pages/submit.py", title="New run", icon=":material/add_circle:"),
        st.Page("app_pages/branches.py", title="Branches", icon=":material/alt_route:"),
        st.Page("app_pages/compare.py", title="Compare", icon=":material/stacked_line_chart:"),
        st.Page("app_pages/queue.py", title="Queue", icon=":material/pending_actions:"),
        st.Page("app_pages/run.py", title="Run", visibility="hidden"),
        st.Page("app_pages/branch.py", title="Branch", visibility="hidden"),
        st.Page("app_pages/episode.py", title="Episode", visibility="hidden"),
    ],
    position="top",
)
page.run()
