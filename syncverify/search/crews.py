"""The crew that plays the shards of a search: this process, several of this machine, a cluster."""

from __future__ import annotations

import functools

from syncverify.processes.calls import Crew, run_here, run_in_processes
from syncverify.scenario.settings import Settings
from syncverify.search.cluster.crew import run_on_cluster


def crew_of(settings: Settings) -> Crew | None:
    """Return the crew of a search; None for a search that has no shards."""
    if settings.cluster is not None or settings.jobs > 1:
        return crew_at(settings.cluster, settings.jobs)
    return run_here if settings.exhaustive else None


def crew_at(place: str | None, jobs: int) -> Crew:
    """Return the workers of a cluster, or processes of this machine where there is none.

    Args:
        place: The cluster, as in `run_on_cluster`; None for this machine.
        jobs: Number of processes of this machine.
    """
    if place is not None:
        return functools.partial(run_on_cluster, place=place)
    return functools.partial(run_in_processes, jobs=jobs)
