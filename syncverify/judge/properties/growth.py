"""The property of memory: what a subject holds does not grow with the steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from syncverify.judge.properties.judgement import Finding, Judgement
from syncverify.scenario.plain_features import MANY


def memory_does_not_pile_up(judgement: Judgement) -> Iterator[Finding]:
    """The number of tensors and handles that a subject holds does not grow in every step.

    For all ranks, where a program has many steps: the number is the same or smaller after
    one of them at least, the first two left out.

    Catches: handles, copies and records of every step that are kept for good. Does not judge
    a history with a bound of a few steps, and does not see what lies in global variables.
    """
    for rank, rank_run in enumerate(judgement.run.ranks):
        held = rank_run.num_held
        later = held[1:]
        if len(held) < MANY["steps"] or any(
            after <= before for before, after in itertools.pairwise(later)
        ):
            continue
        summary = (
            f"rank {rank} holds more tensors and handles of collectives after every step: "
            f"{', '.join(map(str, held))}"
        )
        yield Finding("piles_up", summary, rank, None, {"rank": rank, "held": held})
