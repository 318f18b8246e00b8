"""Pure functions: API models to numbers, tables and chart specs. No Streamlit, no HTTP."""
