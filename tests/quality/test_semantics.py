"""Each run is judged as NCCL would run it, and as gloo would."""

from typing import Any

import pytest

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.playing.sim import SimBackend
from syncverify.subjects.subject import resolve
from tests.programs import report_on
from tests.quality.planted import semantics
from tests.quality.planted.planted import training

pytestmark = pytest.mark.usefixtures("hardly_shrunk")
FEW = {"ranks": 2, "examples": 6}
ON_GLOO = ", on gloo, which runs collectives side by side"


@pytest.mark.long
def test_what_is_right_on_nccl_only_is_found() -> None:
    (found,) = report_on(semantics.RefillsAfterALaterWait, **FEW).violations
    identity = ("bucket_is_exclusive_while_reducing", "touched_in_flight")
    assert found.violation.identity == identity
    assert ON_GLOO in found.violation.summary
    assert (
        "insert `work.wait()` of the all_gather_single"
        in found.violation.evidence.remedy
    )


@pytest.mark.long
@pytest.mark.parametrize("subject", [
    semantics.SendsOnWhatComes, semantics.SendsOnAndForgets,
])  # fmt: skip
def test_a_result_that_is_sent_on_needs_an_order(subject: type[Any]) -> None:
    report = report_on(subject, stop_at_first=True, **FEW)
    assert {each.violation.property for each in report.violations} & {
        "gradient_equals_reference", "wait_orders_reads_after_reduce",
        "bucket_is_exclusive_while_reducing",
    }  # fmt: skip


@pytest.mark.long
def test_what_is_right_on_gloo_only_is_found() -> None:
    violations = [
        each.violation
        for each in report_on(semantics.TakesReturnForDone, **FEW).violations
    ]
    assert "wait_orders_reads_after_reduce" in {each.property for each in violations}
    assert all(ON_GLOO not in each.summary for each in violations)


@pytest.mark.long
@pytest.mark.parametrize("subject", [
    semantics.RefillsInOrder, semantics.RefillsOnNccl, semantics.WaitsForTheFuture,
    semantics.WaitsForTheCallback, semantics.WaitsOnTwoStreams,
    semantics.SendsOnWhatComesOnNccl, semantics.SendsOnParts, semantics.SendsOnPartsOnGpus,
])  # fmt: skip
def test_correct_twin_is_silent(subject: type[Any]) -> None:
    assert report_on(subject, **FEW).violations == ()


@pytest.mark.long
@pytest.mark.parametrize("subject", [
    semantics.JoinsTheStreamAlone, semantics.ForgetsTheCallback,
])  # fmt: skip
def test_a_future_orders_nothing_before_it_is_waited_for(subject: type[Any]) -> None:
    (found,) = report_on(subject, **FEW).violations
    assert found.violation.property == "wait_orders_reads_after_reduce"


@pytest.mark.parametrize(("subject", "did"), [
    (semantics.WaitsForAnEvent, "makes no progress"),
    (semantics.WaitsForAnEventForAWhile, "raises"),
])  # fmt: skip
def test_a_host_that_waits_for_a_callback_is_not_judged(
    subject: type[Any], did: str
) -> None:
    backend = SimBackend(hang_timeout_seconds=0.2)
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        backend.run(training(shape=(3,)), resolve(subject))
    assert str(caught.value) == (
        f"rank 0 {did} while a callback of a future has not run; the sim backend "
        "runs callbacks as the rank waits for a collective, and real ones run beside the "
        "rank; play the subject on gloo"
    )
