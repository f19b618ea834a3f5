"""The collectives that fail in a scenario, where the network is simulated."""

from __future__ import annotations

from collections.abc import Sequence

from syncverify.scenario.feature_row import base_word, variant
from syncverify.sim.network.rendezvous import Failures


def failures_of(events: Sequence[str]) -> Failures | None:
    """Return the failures of the first step whose event has some; None if no step has any."""
    for step, event in enumerate(events):
        if base_word(event) == "failing_collectives":
            return Failures(step, is_first_alone=variant(event) == "first")
    return None
