"""Streamlit components of the dashboard (components v2, no build step)."""
