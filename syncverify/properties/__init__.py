"""Named guarantees, judged on what a run left behind."""

from __future__ import annotations

from syncverify.properties.registry import ALL_PROPERTIES, applied, check
from syncverify.properties.streams import overlap

__all__ = ["ALL_PROPERTIES", "applied", "check", "overlap"]
