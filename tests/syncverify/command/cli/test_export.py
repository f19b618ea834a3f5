"""`syncverify export` writes a script that runs, and refuses in one line what no script shows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from studies.bank_rows import caught
from syncverify.scenario.replay_token import Reproducer, encode
from syncverify.subjects.bugbank.catalogue import entry_of
from tests.programs import one_parameter

ROOT = Path(__file__).parents[4]
CAUGHT = caught()
ALONE = one_parameter(1, "w", (2,), cap_bytes=64)
DOUBLED = encode(Reproducer("unreduced_stay_local", "scaled", ALONE))


def subject_of(entry_id: str) -> str:
    subject = entry_of(entry_id).subject
    return f"{subject.__module__}:{subject.__qualname__}"


@pytest.mark.long
def test_script_shows_the_wrong_gradient(call: Callable, tmp_path: Path) -> None:
    outcome = call("export", DOUBLED, "cli_subjects:Doubles", "--script", "wrong.py")
    assert outcome.code == 0, outcome.err
    assert "rank 0: w.grad is WRONG after wait() of step 0" in outcome.out
    assert (
        "wrote wrong.py: `python wrong.py` shows this with torch alone" in outcome.out
    )
    text = (tmp_path / "wrong.py").read_text(encoding="utf-8")
    assert "from cli_subjects import Doubles" in text
    assert "syncverify" not in text
    # A person reads it.
    assert len(text.splitlines()) < 80
    again = call("export", DOUBLED, "cli_subjects:Doubles", "--script", "wrong.py")
    assert again.code == 2
    assert again.complaint == "'wrong.py' exists already; hint: name another file"


@pytest.mark.parametrize(
    ("entry_id", "reason"),
    [
        ("final-join-missing", "is about the order of work on streams"),
        ("hooks-kept-after-unbind", "leaves no wrong number in a gradient"),
    ],
)
@pytest.mark.slow
def test_what_no_script_shows_is_refused(
    call: Callable, tmp_path: Path, entry_id: str, reason: str
) -> None:
    token = CAUGHT[entry_id].token
    outcome = call("export", token, subject_of(entry_id), "--script")
    assert outcome.code == 2
    assert reason in outcome.complaint
    assert not (tmp_path / "reproduce.py").exists()


def test_violation_that_is_gone_is_refused(call: Callable) -> None:
    outcome = call("export", DOUBLED, "cli_subjects:Right", "--script")
    assert outcome.code == 2
    assert outcome.complaint == (
        "cli_subjects:Right does not violate unreduced_stay_local (scaled) in the scenario of "
        "the token: there is nothing to export"
    )
