"""Streams and signals of a process: no state of them makes a verdict, or hides one."""

import signal
import subprocess
import sys

import pytest

from tests.syncverify.command.played_commands import DIES, PLAYS, played, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.mark.parametrize(
    ("closed", "code"),
    [("exec >&-", 1), ("exec <&- >&- 2>&-", 1), ("exec <&- >&- 2>&-", 0)],
)
def test_closed_streams_change_no_exit_code(closed: str, code: int) -> None:
    """The descriptors of closed streams are free for pipes, on which no print may go."""
    assert played(f"{PLAYS};ends({code})", "bank", shell=closed)[0] == code


@pytest.mark.long
def test_a_full_disk_under_stdout_is_reported_in_one_line() -> None:
    code, _, err = played(f"{PLAYS};ends(1)", "bank", shell="exec >/dev/full")
    assert code == 2
    assert err == "syncverify: cannot print: No space left on device\n"
    everywhere = "exec >/dev/full 2>&1"
    assert played(f"{PLAYS};ends(1)", "bank", shell=everywhere)[0] == 2


@pytest.mark.long
def test_exit_codes_of_children_come_although_their_signal_is_ignored() -> None:
    ignored = "trap '' CHLD"
    assert played(f"{PLAYS};ends(1)", "bank", shell=ignored)[0] == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "change", ["setattr(sys,'stdout',None)", "(sys.stdout.close(),sys.stderr.close())"]
)
def test_a_subject_that_changes_streams_loses_no_verdict(change: str) -> None:
    assert played(f"{PLAYS};{change};ends(0)")[0] == 0
    assert played(f"{PLAYS};{change};complain('', 2)")[0] == 2


@pytest.mark.long
@pytest.mark.parametrize("text", ["ends 0\\n", "\\xff\\n"])
def test_a_subject_says_nothing_to_the_owner(text: str) -> None:
    words = f"says(b'{text}')"
    assert played(f"{PLAYS};{words};ends(0)")[::2] == (0, "")
    assert played(f"{PLAYS};{words};os._exit(0)", f"{words};{DIES}")[0] == 1


@pytest.mark.long
@pytest.mark.skipif(
    sys.platform != "linux", reason="Linux lets a process adopt orphans"
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_child_that_leaves_its_group_ends_with_the_command(number: int) -> None:
    """It holds stdout open while it lives."""
    running = _left_by_its_child()
    running.send_signal(number)
    running.communicate()
    assert running.returncode == (130 if number == signal.SIGINT else -number)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_owner_knows_its_child_ends_both(number: int) -> None:
    """A busy machine may let the child play while the owner returns from `os.fork`."""
    waits = f"""
def slow_fork(fork=os.fork):
    child = fork()
    while child and {number:d} not in signal.sigpending():
        time.sleep(0.01)
    return child
os.fork = slow_fork
"""
    running = _left_by_its_child(waits)
    running.send_signal(number)
    running.communicate()
    assert running.returncode == -number


def _left_by_its_child(prepare: str = "") -> subprocess.Popen[str]:
    """Start an owner whose child plays in the process group of the owner."""
    joins = "os.setpgid(0,os.getpgid(os.getppid()))"
    running = start(f"signal.signal(2,signal.SIG_IGN);{joins};block()", PREPARE=prepare)
    assert [running.stdout.readline() for _ in range(2)] == ["playing\n", "blocks\n"]
    return running
