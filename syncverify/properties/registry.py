"""All properties, by name, and how to judge a run by them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from syncverify.oracle import reference
from syncverify.properties import applicability as when
from syncverify.properties.collectives import each_bucket_reduced_once_per_step
from syncverify.properties.determinism import subject_is_deterministic
from syncverify.properties.judgement import Check, Judgement, merge
from syncverify.properties.launch_order import launch_order_agrees
from syncverify.properties.lifecycle import unbind_restores_parameters, zero_grad_clears
from syncverify.properties.liveness import every_rank_finishes, every_wait_completes
from syncverify.properties.matching import collectives_match_across_ranks
from syncverify.properties.ordering import (
    bucket_is_exclusive_while_reducing,
    memory_outlives_its_streams,
    reduce_reads_after_accumulation,
    wait_orders_reads_after_reduce,
    zero_grad_waits_for_reduce,
)
from syncverify.properties.rounding import gradient_is_within_rounding
from syncverify.properties.streams import (
    overlap_is_possible,
    stream_context_is_restored,
)
from syncverify.properties.values import (
    accumulation_is_local_until_reduced,
    gradient_equals_reference,
    replicas_agree,
    unreduced_stay_local,
)
from syncverify.run import Run
from syncverify.scenario import Scenario
from syncverify.subject import Capabilities
from syncverify.violation import Violation


@dataclass(frozen=True, slots=True)
class Property:
    """A named guarantee.

    Attributes:
        check: Finds where it does not hold.
        applies: Tells whether a run has something that it judges.
        needs_data: Whether it means nothing where collectives move no data.
    """

    check: Check
    applies: Callable[[Judgement], bool]
    needs_data: bool = True

    @property
    def name(self) -> str:
        """Return the name used in reports, docs and tests."""
        return self.check.__name__

    @property
    def statement(self) -> str:
        """Return the guarantee in one sentence."""
        return _first_line(self.check)

    @property
    def condition(self) -> str:
        """Return when it applies, in one sentence."""
        return _first_line(self.applies)


def _first_line(function: Callable[..., object]) -> str:
    return inspect.getdoc(function).partition("\n")[0]  # type: ignore[union-attr]  # all have one


# In the order in which a report tells them: what was called, in which order it may run, and
# what values follow from both.
ALL_PROPERTIES = (
    Property(every_rank_finishes, when.to_every_run, needs_data=False),
    Property(every_wait_completes, when.to_every_run, needs_data=False),
    Property(collectives_match_across_ranks, when.ranks_meet, needs_data=False),
    Property(launch_order_agrees, when.ranks_meet_twice, needs_data=False),
    Property(accumulation_is_local_until_reduced, when.accumulates, needs_data=False),
    # Where collectives move no data, operators leave no accesses behind to judge.
    Property(reduce_reads_after_accumulation, when.reduces_recorded_memory),
    Property(bucket_is_exclusive_while_reducing, when.reduces_recorded_memory),
    Property(wait_orders_reads_after_reduce, when.reduces_recorded_memory),
    Property(zero_grad_waits_for_reduce, when.zeroes_recorded_memory),
    Property(memory_outlives_its_streams, when.frees_memory),
    Property(gradient_equals_reference, when.exact_gradient_seen),
    Property(gradient_is_within_rounding, when.module_gradient_seen),
    Property(replicas_agree, when.reduced_gradient_seen),
    Property(unreduced_stay_local, when.unreduced_gradient_seen),
    Property(zero_grad_clears, when.zeroed, needs_data=False),
    Property(each_bucket_reduced_once_per_step, when.owes_reduction, needs_data=False),
    Property(unbind_restores_parameters, when.unbound, needs_data=False),
    Property(stream_context_is_restored, when.calls_return, needs_data=False),
    Property(overlap_is_possible, when.could_overlap),
    Property(subject_is_deterministic, when.played_twice, needs_data=False),
)


def check(
    scenario: Scenario,
    run: Run,
    capabilities: Capabilities,
    *,
    again: Run | None = None,
) -> list[Violation]:
    """Judge a run.

    Args:
        scenario: What was played.
        run: What came out.
        capabilities: What the subject promises.
        again: The same, played once more, if it was.

    Returns:
        One violation per property and cause, in the order of `ALL_PROPERTIES`.
    """
    judgement = Judgement(scenario, run, reference(scenario, capabilities), again)
    return [
        violation
        for entry in ALL_PROPERTIES
        if run.carries_data or not entry.needs_data
        for violation in merge(entry.name, entry.check(judgement))
    ]


def applied(
    scenario: Scenario,
    run: Run,
    capabilities: Capabilities,
    *,
    again: Run | None = None,
) -> tuple[str, ...]:
    """Name the properties that had something to judge in a run; it takes what `check` does."""
    judgement = Judgement(scenario, run, reference(scenario, capabilities), again)
    return tuple(
        entry.name
        for entry in ALL_PROPERTIES
        if (run.carries_data or not entry.needs_data) and entry.applies(judgement)
    )
