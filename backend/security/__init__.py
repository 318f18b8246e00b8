"""Who may do what: tokens, the gate before the API, and the bounds of what a config may name.

The threat model is docs/security.md.
"""
