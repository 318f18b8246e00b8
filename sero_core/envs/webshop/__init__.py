"""WebShop: one immutable shop per machine, an immutable state per episode, a pure step."""
