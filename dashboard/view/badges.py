"""One color and one icon per state, the same on every page. Never the color alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Color = Literal["red", "orange", "blue", "green", "violet", "gray"]


@dataclass(frozen=True, slots=True)
class Badge:
    """What `st.badge` needs; `symbol` is the same mark for table cells."""

    label: str
    color: Color
    icon: str
    symbol: str

    @property
    def cell(self) -> str:
        return f"{self.symbol} {self.label}"


_STATES = {
    "queued": Badge("queued", "gray", ":material/schedule:", "○"),
    "running": Badge("running", "blue", ":material/play_circle:", "▶"),
    "stopping": Badge("stopping", "orange", ":material/pause_circle:", "◧"),
    "succeeded": Badge("succeeded", "green", ":material/check_circle:", "✓"),
    "failed": Badge("failed", "red", ":material/error:", "✗"),
    "cancelled": Badge("cancelled", "gray", ":material/block:", "⊘"),
    "skipped": Badge("skipped", "gray", ":material/skip_next:", "⇥"),
    "released": Badge("released", "gray", ":material/logout:", "↩"),
    "lost": Badge("lost", "orange", ":material/signal_disconnected:", "⚠"),
}
_OUTCOMES = {
    "won": Badge("won", "green", ":material/check_circle:", "✓"),
    "horizon": Badge("horizon", "blue", ":material/content_cut:", "◫"),
    "dead_end": Badge("dead end", "orange", ":material/do_not_disturb_on:", "⊘"),
    "budget": Badge("budget", "orange", ":material/hourglass_disabled:", "⌛"),
    "oracle_error": Badge("oracle error", "red", ":material/error:", "✗"),
    "restore_mismatch": Badge("restore mismatch", "red", ":material/warning:", "⚠"),
}


def state(name: str) -> Badge:
    """Badge of a run, job or attempt state. Errors: KeyError for a state the API does not have."""
    return _STATES[name]


def outcome(name: str) -> Badge:
    """Badge of a branch outcome. Errors: KeyError for an outcome the API does not have."""
    return _OUTCOMES[name]


def episode(is_won: bool | None, is_truncated: bool = False) -> Badge:
    """Badge of a policy episode; None = the episode is not stored."""
    if is_won is None:
        return Badge("unknown", "gray", ":material/help:", "?")
    if is_won:
        return _OUTCOMES["won"]
    if is_truncated:
        return Badge("out of steps", "orange", ":material/timer_off:", "✗")
    return Badge("lost", "red", ":material/cancel:", "✗")


def is_live(status: str) -> bool:
    """Whether the run can still change by itself."""
    return status in ("queued", "running", "stopping")
