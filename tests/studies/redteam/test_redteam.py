"""The red team's programs are well formed, and some are caught, silent or refused as stored."""

import pytest

from studies.redteam.program import BLIND_SPOTS, KINDS, program_named, programs, wrong
from studies.redteam.scoring import score_of
from syncverify.bugbank.catalogue import entries
from syncverify.errors import UsageError


def test_each_blind_spot_has_a_wrong_program() -> None:
    topics = {p.topic for p in programs() if p.is_wrong}
    assert topics == {*BLIND_SPOTS, *KINDS}


def test_names_are_unique_and_no_entry_of_the_bank_is_played() -> None:
    names = [program.name for program in programs()]
    assert len({*names}) == len(names)
    assert not {p.subject for p in programs()} & {entry.subject for entry in entries()}


def test_a_wrong_program_is_caught() -> None:
    score = score_of("averages-on-nccl", examples=20)
    assert (score.verdict, score.token[:4]) == ("caught", "sv2-")


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="unknown defect 'nobody'"):
        program_named("nobody")
    with pytest.raises(ValueError, match="BLIND_SPOTS"):
        wrong("nowhere", trigger="any")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "blocks-the-stream",
        "sends-words",
        "sums-through-the-store",
        "waits-with-atimeout",
    ],
)
def test_a_right_program_is_not_accused(name: str) -> None:
    assert score_of(name, examples=6).verdict == "silent"


# Threads of the other ranks end in the middle of a call.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", ["waits-on-athread", "reduces-in-apool"])
def test_a_thread_of_the_subject_is_refused(name: str) -> None:
    score = score_of(name, examples=5)
    assert (score.verdict, score.identity) == (
        "not judged",
        "EnvironmentNotSupportedError",
    )
    assert "threads that communicate beside their rank" in score.message
