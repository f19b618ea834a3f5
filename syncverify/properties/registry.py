"""All properties, by name, and how to judge a run by them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from syncverify.oracle import reference
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
        needs_data: Whether it means nothing where collectives move no data.
    """

    check: Check
    needs_data: bool = True

    @property
    def name(self) -> str:
        """Return the name used in reports, docs and tests."""
        return self.check.__name__

    @property
    def statement(self) -> str:
        """Return the guarantee in one sentence."""
        return inspect.getdoc(self.check).partition("\n")[0]  # type: ignore[union-attr]  # all have one


ALL_PROPERTIES = (
    Property(every_rank_finishes, needs_data=False),
    Property(every_wait_completes, needs_data=False),
    Property(collectives_match_across_ranks, needs_data=False),
    Property(launch_order_agrees, needs_data=False),
    Property(gradient_equals_reference),
    Property(gradient_is_within_rounding),
    Property(replicas_agree),
    Property(unreduced_stay_local),
    Property(accumulation_is_local_until_reduced, needs_data=False),
    Property(zero_grad_clears, needs_data=False),
    Property(each_bucket_reduced_once_per_step, needs_data=False),
    Property(unbind_restores_parameters, needs_data=False),
    # Where collectives move no data, operators leave no accesses behind to judge.
    Property(reduce_reads_after_accumulation),
    Property(bucket_is_exclusive_while_reducing),
    Property(wait_orders_reads_after_reduce),
    Property(zero_grad_waits_for_reduce),
    Property(memory_outlives_its_streams),
    Property(stream_context_is_restored, needs_data=False),
    Property(overlap_is_possible),
    Property(subject_is_deterministic, needs_data=False),
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
