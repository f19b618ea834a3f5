"""Causes of runs that take seconds, which a repair plays rarely or never."""

from __future__ import annotations

from typing import Final

# A time limit, or the death of a process, ends the run.
ENDED_FROM_OUTSIDE: Final = frozenset({"never_returns", "process_died"})
# The bound on turns ends the run, too.
SLOW: Final = ENDED_FROM_OUTSIDE | {"step_bound"}
