"""Rules by which a disturbed command is judged, and one command that is."""

from dataclasses import replace

import pytest

from studies.kills.trial import Trial, played

HELD = Trial(
    *(0, "gloo", True, 1, False),
    kills=[("worker", "SIGKILL")],
    code=0,
    output="NO VIOLATION: it held",
)
FOUND = replace(HELD, is_right=False, code=1, output="1 VIOLATION: it did not")


@pytest.mark.parametrize(
    "trial",
    [
        HELD,
        FOUND,
        replace(HELD, code=3, output="no verdict"),
        replace(HELD, kills=[("owner", "SIGINT")], code=130, output=""),
        replace(HELD, code=1, output="Fatal Python error: init_import_site: no"),
        replace(FOUND, kills=[("owner", "SIGKILL")], code=-9, output=""),
    ],
)
def test_an_end_as_it_should_be(trial: Trial) -> None:
    assert trial.faults() == []


@pytest.mark.parametrize(
    ("trial", "fault"),
    [
        (replace(HELD, is_right=False), "exit code 0"),
        (replace(FOUND, is_right=True), "exit code 1"),
        (replace(HELD, output=""), "exit code 0 without a verdict"),
        (replace(FOUND, output="FOUND every_rank_finishes (process_died)"),
         "the subject is blamed for a kill"),
        (replace(HELD, left=["worker"]), "left behind: worker"),
        (replace(HELD, code=None), "did not end within 150 s"),
        (replace(HELD, code=3, output="Traceback"), "a traceback"),
        # Nothing but a signal to its owner ends a command by a signal.
        (replace(HELD, code=-9), "exit code -9"),
    ],
)  # fmt: skip
def test_an_end_as_it_should_not_be(trial: Trial, fault: str) -> None:
    assert fault in trial.faults()


def test_trials_depend_on_their_number_alone_and_have_all_kinds() -> None:
    trials = [Trial.planned(number) for number in range(60)]
    assert trials == [Trial.planned(number) for number in range(60)]
    assert {(each.backend, each.is_right) for each in trials} == {
        ("sim", True), ("sim", False), ("gloo", True), ("gloo", False),
    }  # fmt: skip


@pytest.mark.long
def test_a_command_ends_as_it_should_when_a_process_is_killed() -> None:
    trial = played(2)
    assert trial.kills
    assert trial.faults() == []
