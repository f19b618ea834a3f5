"""Play what earlier runs found, before anything is drawn."""

from __future__ import annotations

import contextlib
import time

from strategies.judge import Backend, Identity, Judge, OutOfBudgetError
from strategies.saved import SavedViolations
from strategies.schedule_choice import ScheduleChoice
from strategies.search_result import Found, SearchResult
from syncverify.coverage import Coverage
from syncverify.declared import Space
from syncverify.properties.determinism import subject_is_deterministic


def replay_saved(
    saved: SavedViolations, backend: Backend, *, max_ranks: int
) -> tuple[SearchResult, int]:
    """Play each saved violation as it was recorded, and forget those that are gone.

    Args:
        saved: What earlier runs found.
        backend: Where to play.
        max_ranks: Largest world.

    Returns:
        What still fails, in the scenarios that were saved, as a search without examples;
        and how many scenarios were played.
    """
    started = time.monotonic()
    judge = Judge(saved.subject, backend, ScheduleChoice(), 0, None)
    least: dict[Identity, Found] = {}
    num_played = 0
    for recording in saved.recordings(max_ranks):
        twice = recording.property == subject_is_deterministic.__name__
        with contextlib.suppress(OutOfBudgetError):
            verdict = judge.followed(
                recording.scenario, recording.schedule, twice=twice
            )
            num_played += 1
            for identity, violation in verdict.violations.items():
                entry = Found(violation, recording.scenario, verdict.decisions)
                least.setdefault(identity, entry)
            if not verdict.violations:
                saved.drop(recording)
    empty = Coverage(Space(saved.subject.capabilities, max_ranks))
    seconds = time.monotonic() - started
    return SearchResult(0, seconds, empty, list(least.values()), [], (0, 0)), num_played
