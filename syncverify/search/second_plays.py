"""Which scenarios are played a second time, to see whether the subject does the same again."""

from __future__ import annotations

from syncverify.scenario.scenario import Scenario
from syncverify.search.judge import JudgedRun

# An order that comes from chance is the same in half of the second plays of two buckets.
_MIN_PLAYS = 6


class SecondPlays:
    """Chooses scenarios to play twice: the largest so far, and the first with an order."""

    def __init__(self) -> None:
        self._largest = 0
        self._num_ordered = 0

    def includes(self, scenario: Scenario, judged: JudgedRun) -> bool:
        """Return whether to play a scenario again, whose first run is given."""
        if judged.violations:
            return False  # each of these is played twice when the search is over
        size = judged.launches_per_step * scenario.mesh.num_ranks
        is_largest = size > self._largest
        has_order = judged.launches_per_step > 1 and self._num_ordered < _MIN_PLAYS
        self._largest = max(self._largest, size)
        self._num_ordered += has_order
        return is_largest or has_order
