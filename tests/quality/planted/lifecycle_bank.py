"""The defects of lifecycles, each with the word that shows it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from syncverify.bugbank.cross_rank import PacksWhatIsUsed
from syncverify.bugbank.faults import (
    KeepsCountsOfFailedStep,
)
from syncverify.bugbank.lifecycle.storage import (
    ForgetsEarlierMicroBatches,
    TrustsViews,
    TrustsViewsOfMoved,
)
from syncverify.bugbank.lifecycle.windows import (
    LeavesTail,
    WaitsForWhatWasLaunched,
)
from syncverify.scenario.scenario import Scenario
from tests.quality.planted import lifecycle_words as words
from tests.quality.planted.planted import VALUE, Planted, each_parameter, plant

UNREDUCED = (VALUE, "not_reduced")
LOST = (VALUE, "view_lost")


def without(topic: str) -> Callable[[Scenario], Scenario]:
    """Make the plain scenario of one that has nothing special but this topic."""
    return {
        "event": lambda scenario: replace(scenario, events=()),
        "launch": lambda scenario: replace(scenario, launch="current_stream"),
        "readiness": lambda scenario: replace(scenario, readiness="same"),
        "synchronizers": lambda scenario: replace(scenario, synchronizers="one"),
        "used": each_parameter(lambda spec: replace(spec, used="always")),
    }[topic]


def defect(
    feature: str,
    subject: type[Any],
    identity: tuple[str, str],
    examples: int = 150,
    random_seed: int = 0,
) -> Planted:
    taken_out = without(feature.partition("=")[0])
    return plant(
        subject,
        identity,
        feature,
        without=taken_out,
        examples=examples,
        random_seed=random_seed,
    )


READS_EARLY = ("reduce_reads_after_accumulation", "reduced_before_accumulated")
LIFECYCLE_DEFECTS = [
    defect("event=wait_twice", words.ReducesInEachWait, (VALUE, "reduced_twice")),
    defect(
        "event=zero_before_wait", words.ZeroesInFlight,
        ("zero_grad_waits_for_reduce", "zeroed_in_flight"),
    ),
    defect("event=set_to_none", TrustsViews, LOST),
    defect("event=empty_step", words.LearnsFromFirstStep, UNREDUCED),
    defect("event=extra_backward", words.DropsLateGradients, (VALUE, "reduced_early")),
    defect("event=missing_backward", WaitsForWhatWasLaunched, UNREDUCED),
    defect("event=tail", LeavesTail, UNREDUCED),
    defect(
        "event=rebind", words.BindsOnce, ("every_rank_finishes", "raised_RuntimeError")
    ),
    defect(
        "event=raise_in_backward", KeepsCountsOfFailedStep,
        ("accumulation_is_local_until_reduced", "reduced_early"),
    ),
    defect("event=freeze", words.SkipsBucketsOfFrozen, UNREDUCED),
    defect("event=unfreeze", words.LeavesLaterTrainedLocal, UNREDUCED),
    defect("event=unfreeze_in_turn", words.TrustsLastFrozen, UNREDUCED),
    defect("event=set_every_other_to_none", words.ChecksOneView, LOST),
    defect(
        "event=rebind_announced", words.BindsFirstCount,
        ("accumulation_is_local_until_reduced", "reduced_early"),
    ),
    defect("event=remade", words.LeavesTakenParameters, UNREDUCED),
    defect("event=unbind_early", words.KeepsProgress, UNREDUCED),
    defect("event=cast", words.TrustsViewsOfCast, LOST),
    defect(
        "event=cast_before_zero", words.ZeroesBucketsAlone,
        ("zero_grad_clears", "gradient_left"),
    ),
    defect("event=move", TrustsViewsOfMoved, LOST),
    defect("event=failing_collectives", words.HidesFailures, (VALUE, "failure_hidden")),
    defect(
        "launch=step_on_side_stream", words.JoinsDefaultStream,
        ("wait_orders_reads_after_reduce", "read_before_reduced"),
    ),
    defect("launch=step_on_new_stream", words.KeepsFirstStream, READS_EARLY),
    defect("launch=bind_on_side_stream", words.ForksFromDefaultStream, READS_EARLY),
    defect("launch=parameter_streams", words.ForksFromLastGradient, READS_EARLY),
    defect(
        "readiness=by_rank", words.LaunchesWhatIsReady,
        ("collectives_match_across_ranks", "bucket_mismatch"),
    ),
    defect(
        "synchronizers=two", words.WaitsForTheNewest,
        ("wait_orders_reads_after_reduce", "read_before_reduced"),
    ),
    defect(
        "used=undefined", words.ScalesEachGradient,
        ("every_rank_finishes", "unclear_error"),
    ),
    defect("used=never", words.SkipsIncompleteBuckets, UNREDUCED),
    defect(
        "used=not_on_odd_ranks", PacksWhatIsUsed,
        ("every_wait_completes", "deadlock"),
    ),
    defect(
        "used=not_in_first_micro_batch", words.LearnsFromFirstMicroBatch,
        (VALUE, "reduced_early"), examples=1000,
        # Few scenarios show it: seed 0 draws none among those that the test plays.
        random_seed=5,
    ),
    defect(
        "used=not_in_last_micro_batch", ForgetsEarlierMicroBatches,
        ("unreduced_stay_local", "erased"),
    ),
]  # fmt: skip
