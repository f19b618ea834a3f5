"""Rules by which a disturbed command is judged, and one command that is."""

from dataclasses import replace
from typing import Any

import pytest

from studies.kills.trial import Plan, TrialEnd, faults_of, planned, play

RIGHT = Plan(0, "gloo", is_right=True, num_kills=1, awaits_workers=False)
WRONG = replace(RIGHT, is_right=False)
HELD = TrialEnd([("worker", "SIGKILL")], 0, 1.0, "NO VIOLATION: it held")
FOUND = TrialEnd([("worker", "SIGSTOP")], 1, 1.0, "1 VIOLATION: it did not")


def with_(ending: TrialEnd, **changes: Any) -> TrialEnd:
    return replace(ending, **changes)


@pytest.mark.parametrize(
    ("plan", "ending"),
    [
        (RIGHT, HELD),
        (WRONG, FOUND),
        (RIGHT, with_(HELD, code=3, output="no verdict")),
        (RIGHT, with_(HELD, kills=[("owner", "SIGINT")], code=130, output="")),
        (RIGHT, with_(HELD, code=1, output="Fatal Python error: init_import_site: no")),
        (WRONG, with_(FOUND, kills=[("owner", "SIGKILL")], code=-9, output="")),
    ],
)
def test_an_end_as_it_should_be(plan: Plan, ending: TrialEnd) -> None:
    assert faults_of(plan, ending) == []


@pytest.mark.parametrize(
    ("plan", "ending", "fault"),
    [
        (WRONG, HELD, "exit code 0"),
        (RIGHT, FOUND, "exit code 1"),
        (RIGHT, with_(HELD, output=""), "exit code 0 without a verdict"),
        (WRONG, with_(FOUND, output="FOUND every_rank_finishes (process_died)"),
         "the subject is blamed for a kill"),
        (RIGHT, with_(HELD, left=["worker"]), "left behind: worker"),
        (RIGHT, with_(HELD, code=None), "did not end within 150 s"),
        (RIGHT, with_(HELD, code=3, output="Traceback"), "a traceback"),
        # Nothing but a signal to its owner ends a command by a signal.
        (RIGHT, with_(HELD, code=-9), "exit code -9"),
    ],
)  # fmt: skip
def test_an_end_as_it_should_not_be(plan: Plan, ending: TrialEnd, fault: str) -> None:
    assert fault in faults_of(plan, ending)


def test_plans_depend_on_their_number_alone_and_have_all_kinds() -> None:
    plans = [planned(number) for number in range(60)]
    assert plans == [planned(number) for number in range(60)]
    assert {(each.backend, each.is_right) for each in plans} == {
        ("sim", True), ("sim", False), ("gloo", True), ("gloo", False),
    }  # fmt: skip


@pytest.mark.long
def test_a_command_ends_as_it_should_when_a_process_is_killed() -> None:
    plan = planned(2)
    ending = play(plan)
    assert ending.kills
    assert faults_of(plan, ending) == []
