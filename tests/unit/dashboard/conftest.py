"""Property tests here are about results, not speed: no deadline on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("dashboard", deadline=None)
settings.load_profile("dashboard")
