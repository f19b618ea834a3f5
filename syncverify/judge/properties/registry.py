"""All properties, by name, and the function that judges a run by them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from syncverify.judge.properties import applicability as when
from syncverify.judge.properties.accumulation import (
    accumulation_is_local_until_reduced,
)
from syncverify.judge.properties.bucket_cap import bucket_fits_the_cap
from syncverify.judge.properties.collectives import each_bucket_reduced_once_per_step
from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.judge.properties.forms import gradient_has_form_of_parameter
from syncverify.judge.properties.growth import memory_does_not_pile_up
from syncverify.judge.properties.judgement import Check, Judgement, merge
from syncverify.judge.properties.launch_order import launch_order_agrees
from syncverify.judge.properties.lifecycle import (
    every_rank_finishes,
    every_wait_completes,
    unbind_restores_parameters,
    zero_grad_clears,
)
from syncverify.judge.properties.matching import collectives_match_across_ranks
from syncverify.judge.properties.ordering import (
    bucket_is_exclusive_while_reducing,
    memory_outlives_its_streams,
    reduce_reads_after_accumulation,
    wait_orders_reads_after_reduce,
    zero_grad_waits_for_reduce,
)
from syncverify.judge.properties.streams import (
    overlap_is_possible,
    stream_context_is_restored,
)
from syncverify.judge.properties.values import (
    gradient_equals_reference,
    gradient_is_within_rounding,
    replicas_agree,
    unreduced_stay_local,
)
from syncverify.judge.reference import reference
from syncverify.judge.violation import Violation
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.trace.run import Run


@dataclass(frozen=True, slots=True)
class Property:
    """A named guarantee.

    Attributes:
        check: Yields findings: places where the property does not hold.
        applies: Tells whether a run has something to judge.
        needs_data: Whether the property needs collectives that move data.
        promise: Field of `Capabilities` without which nothing is judged; "" for none.
    """

    check: Check
    applies: Callable[[Judgement], bool]
    needs_data: bool = True
    promise: str = ""

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
        """Return the condition under which the property applies, in one sentence."""
        return _first_line(self.applies)


def _first_line(function: Callable[..., object]) -> str:
    return inspect.getdoc(function).partition("\n")[0]  # type: ignore[union-attr]  # all have one


# In the order of a report: first the calls, then the order in which work may run, then the
# values that follow from both.
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
    Property(
        gradient_has_form_of_parameter, when.trainable_gradient_seen, needs_data=False
    ),
    Property(replicas_agree, when.replicas_compared),
    Property(unreduced_stay_local, when.unreduced_gradient_seen),
    Property(zero_grad_clears, when.zeroed, needs_data=False),
    Property(each_bucket_reduced_once_per_step, when.owes_reduction, needs_data=False),
    Property(
        bucket_fits_the_cap,
        when.keeps_a_cap,
        needs_data=False,
        promise="keeps_bucket_cap",
    ),
    Property(unbind_restores_parameters, when.unbound, needs_data=False),
    Property(memory_does_not_pile_up, when.many_steps, needs_data=False),
    Property(stream_context_is_restored, when.calls_return, needs_data=False),
    Property(overlap_is_possible, when.could_overlap, promise="overlaps_backward"),
    Property(subject_is_deterministic, when.played_twice, needs_data=False),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one run.

    Attributes:
        violations: One entry per property and cause, in the order of `ALL_PROPERTIES`.
        applied: Names of the properties that had something to judge.
    """

    violations: list[Violation]
    applied: tuple[str, ...]


def judge_run(
    scenario: Scenario,
    run: Run,
    capabilities: Capabilities,
    *,
    again: Run | None = None,
) -> Verdict:
    """Judge a run by all properties.

    Args:
        scenario: The scenario that was played.
        run: Its observations and traces.
        capabilities: The promises of the subject.
        again: A second run of the same scenario and schedule, if there is one.

    Returns:
        The violations, and the names of the properties that applied.
    """
    judgement = Judgement(
        scenario, run, reference(scenario, capabilities, run.device), again
    )
    judging = [p for p in ALL_PROPERTIES if run.carries_data or not p.needs_data]
    violations = [
        violation
        for entry in judging
        for violation in merge(entry.name, entry.check(judgement))
    ]
    applied = tuple(entry.name for entry in judging if entry.applies(judgement))
    return Verdict(violations, applied)


def check(
    scenario: Scenario,
    run: Run,
    capabilities: Capabilities,
    *,
    again: Run | None = None,
) -> list[Violation]:
    """Return the violations of `judge_run`, which takes the same arguments."""
    return judge_run(scenario, run, capabilities, again=again).violations
