"""The judge of orderings against verdicts that were reached without it."""

import pytest

from syncverify.judge.ordering.device_queues import waits_in_a_circle
from syncverify.judge.ordering.races import judge_orderings
from tests.syncverify.judge.ordering.case_pairs import CASES
from tests.syncverify.judge.ordering.cases import Case, Label
from tests.syncverify.judge.ordering.micro_traces import traces


def verdict(case: Case) -> Label:
    found = judge_orderings(traces(*case.programs), case.semantics)
    assert not (found.races and found.early_frees), case.name
    if found.races:
        return "race"
    return "early free" if found.early_frees else "legal"


def test_precision_and_recall_are_one() -> None:
    wrong = [
        f"{case.name}: {case.label}, judged {judged}: {case.programs}"
        for case in CASES
        if (judged := verdict(case)) != case.label
    ]
    assert wrong == []


@pytest.mark.parametrize("keep", range(4))
def test_a_trace_that_ends_early_has_no_other_races(keep: int) -> None:
    """Work that is missing in a trace makes no race of the work in it."""
    found = {}
    for case in [case for case in CASES if case.label == "legal"]:
        whole = traces(*case.programs)
        cut = [events[: len(events) * keep // 4] for events in whole]
        judged = judge_orderings(cut, case.semantics)
        found[case.name] = [*judged.races, *judged.early_frees]
    assert found
    assert not any(found.values()), found


# Queued work of devices that waits in a circle.


@pytest.mark.parametrize(
    "programs",
    [
        # On the stream that issues them, each one waits for the one before.
        ("reduce c b[0:8] default>default; reduce d a[0:8] default>default",
            "reduce d a[0:8] default>default; reduce c b[0:8] default>default"),
        # On streams of their own, the second one waits for a stream that waits for the first.
        ("reduce c b[0:8] default>one; await c default; reduce d a[0:8] default>two",
            "reduce d a[0:8] default>two; await d default; reduce c b[0:8] default>one"),
        # On one communication stream.
        ("reduce c b[0:8] default>nccl; reduce d a[0:8] side>nccl",
            "reduce d a[0:8] default>nccl; reduce c b[0:8] side>nccl"),
        # Through an event.
        (
            ("reduce c b[0:8] default>one; await c side; mark m side; until default m;"
            "reduce d a[0:8] default>two"),
            "reduce d a[0:8] default>two; await d default; reduce c b[0:8] default>one"),
    ],
)  # fmt: skip
def test_waits_in_a_circle_are_found(programs: tuple[str, ...]) -> None:
    assert waits_in_a_circle(traces(*programs))


@pytest.mark.parametrize(
    "programs",
    [
        ("reduce c b[0:8] default>nccl; await c default",) * 2,
        # The stream that waits holds no collective.
        (
            "reduce c b[0:8] default>one; await c side; reduce d a[0:8] default>two",
            "reduce d a[0:8] default>two; await d side; reduce c b[0:8] default>one",
        ),
        # The other rank may issue it later.
        ("reduce c b[0:8] default>nccl; await c default", ""),
        # An event that is recorded later, or never, is not waited for.
        ("until default m; reduce c b[0:8] default>nccl; mark m default",) * 2,
    ],
)
def test_waits_in_order_are_no_circle(programs: tuple[str, ...]) -> None:
    assert not waits_in_a_circle(traces(*programs))
