"""The red team's programs are well formed, and some are caught, silent or refused as stored."""

import pytest

from studies.redteam.programs import programs
from studies.redteam.scoring import score_of
from syncverify.subjects.bugbank.catalogue import entries


def test_names_are_unique_and_no_entry_of_the_bank_is_played() -> None:
    names = [program.name for program in programs()]
    assert len({*names}) == len(names)
    assert not {p.subject for p in programs()} & {entry.subject for entry in entries()}


@pytest.mark.long
def test_a_wrong_program_is_caught() -> None:
    score = score_of("averages-on-nccl", limit=20)
    assert score.verdict == "caught"
    assert score.identity == "gradient_equals_reference (scaled)"


@pytest.mark.long
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
    assert score_of(name, limit=6).verdict == "silent"


# Threads of the other ranks end in the middle of a call.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", ["waits-on-athread", "reduces-in-apool"])
def test_a_thread_of_the_subject_is_refused(name: str) -> None:
    score = score_of(name, limit=5)
    assert (score.verdict, score.identity) == (
        "not judged",
        "EnvironmentNotSupportedError",
    )
