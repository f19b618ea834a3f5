"""The second child starts early, and only its own evidence counts."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.syncverify.command.played_commands import BLOCKS, PLAYS, played, start

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere flock(2) differs"),
]
# No clock of the owner ends the first child; the second child lets it go on.
NO_END = {"silence": 50.0}


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("then", ["block()", "os._exit(0)", "ends(1)"])
def test_a_word_of_the_first_child_ends_the_second(fifo: str, then: str) -> None:
    first = f"{PLAYS};goes_on_with({fifo!r});ends(0)"
    second = f"{PLAYS};lets_go_on({fifo!r});{then}"
    assert played(first, second, patience=NO_END) == (0, "playing\n", "")


def test_a_verdict_of_the_second_child_counts_for_nothing_after_a_word(
    fifo: str,
) -> None:
    first = f"{PLAYS};goes_on_with({fifo!r});ends(0)"
    second = f"{PLAYS};tell_end(1);lets_go_on({fifo!r});os._exit(1)"
    assert played(first, second, patience=NO_END)[0] == 0


def test_the_second_child_plays_while_the_first_is_silent(tmp_path: Path) -> None:
    """The first holds a lock that only its end gives back: the second cannot get it."""
    lock = str(tmp_path / "lock")
    first = f"{PLAYS};locks({lock!r});block()"
    second = f"{PLAYS};locks({lock!r});block()"
    code, out, _ = played(first, second)
    assert code == 1
    assert "VIOLATION: every_wait_completes (never_returns)\n" in out


def test_a_wait_for_a_lock_of_the_first_child_is_no_evidence(tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    first = f"{PLAYS};locks({lock!r});block()"
    second = f"{PLAYS};locks({lock!r});ends(0)"
    code, _, err = played(first, second, patience={"release": 3.0})
    assert code == 3
    assert err.startswith("syncverify: no verdict: the process that plays does not ")


def test_a_death_while_the_first_child_lives_is_no_evidence(tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    dies_once = f"{PLAYS};is_new({mark!r})and(os._exit(9))"
    code, _, err = played(BLOCKS, f"{dies_once};ends(0)")
    assert code == 3
    assert "A new process ends that run" in err
    Path(mark).unlink()
    code, out, _ = played(BLOCKS, f"{dies_once};block()")
    assert code == 1
    assert "VIOLATION: every_wait_completes (never_returns)\n" in out


def test_a_death_of_the_first_child_leaves_the_verdict_to_the_second(fifo: str) -> None:
    first = f"{PLAYS};goes_on_with({fifo!r});os._exit(0)"
    second = f"{PLAYS};lets_go_on({fifo!r});ends(0)"
    code, _, err = played(first, second, patience=NO_END)
    assert (code, "ended by exit code 0 in run 1" in err) == (3, True)


def test_a_subject_that_is_slow_in_each_scenario_is_not_played_twice_in_each(
    tmp_path: Path,
) -> None:
    """Each silence is as long as the one before, and the suspicion twice as long."""
    starts = tmp_path / "starts"
    first = ";".join([PLAYS, "naps(0.8)"] * 3)
    second = f"open({str(starts)!r},'a').write('x');{BLOCKS}"
    assert played(f"{first};ends(0)", second, patience=NO_END)[0] == 0
    # A nap that the machine makes longer may be a second suspicion, and no third one.
    assert 1 <= len(starts.read_text()) <= 2


def test_a_silence_that_is_short_for_this_subject_confirms_nothing() -> None:
    stops = "os.kill(os.getpid(),signal.SIGSTOP);block()"
    first = f"{PLAYS};naps(1);{PLAYS};{stops}"
    patience = {"silence": 3.0, "confirmation": 0.2, "release": 0.0}
    code, _, err = played(first, f"{PLAYS};naps(1);ends(0)", patience=patience)
    assert (code, "in run 2; to play that one: " in err) == (3, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_both_children_end_with_the_owner(number: int) -> None:
    """They hold the writing end of a pipe while they live."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as ours:
        running = start(
            f"signal.signal(2,signal.SIG_IGN);{BLOCKS}",
            f"os.write({writing},b'x');signal.signal(2,signal.SIG_IGN);{BLOCKS}",
            descriptors=(writing,),
            patience=NO_END,
        )
        os.close(writing)
        assert ours.read(1) == b"x"  # both play
        running.send_signal(number)
        running.communicate()
        assert ours.read() == b""
    assert running.returncode == (130 if number == signal.SIGINT else -number)
