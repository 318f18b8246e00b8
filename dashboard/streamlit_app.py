"""SERO Lab's dashboard: `streamlit run dashboard/streamlit_app.py`. Speaks only to the HTTP API."""

from __future__ import annotations

import streamlit as st

from dashboard import gate

# The favicon lies here: a named icon would be fetched from a font server.
ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none"
 stroke="#1f78b4" stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round">
 <path d="M3 17h6c6 0 5-10 12-10"/><path d="M17 3l4 4-4 4"/>
 <path d="M13 17h8" stroke="#d55e00" stroke-dasharray="1 4"/></svg>"""

st.set_page_config(page_title="SERO Lab", page_icon=ICON, layout="wide")
gate.require()

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
