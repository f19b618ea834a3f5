"""The judge of orderings against verdicts that were reached without it."""

from collections import Counter

import pytest

from syncverify.judge.ordering.races import judge_orderings
from tests.syncverify.judge.ordering.case import Case, Label
from tests.syncverify.judge.ordering.labelled import CASES
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


def test_suite_is_wide_and_balanced() -> None:
    labels = Counter(case.label for case in CASES)
    assert labels.total() >= 200
    assert labels["race"] >= 100 <= labels["legal"]
    assert labels["early free"] >= 8
    assert len({(case.programs, case.semantics) for case in CASES}) == len(CASES)


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
