"""The owner of a command: exit code 0 comes from a process that has judged, and from nothing else.

The processes here import no torch, and play what a subject could do to them.
"""

import re
import signal
import sys
from pathlib import Path

import pytest

from syncverify.scenario.replay_token import decode
from tests.syncverify.command.played_commands import BLOCKS, DIES, PLAYS, played, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_code_that_was_reported_counts(code: int) -> None:
    assert played(f"{PLAYS};ends({code})") == (code, "playing\n", "")


@pytest.mark.long
@pytest.mark.parametrize(
    "after", ["os._exit(7)", "ctypes.string_at(0)", "fork(sys.exit)", "block()"]
)
def test_a_code_that_was_sent_counts_whatever_comes_then(after: str) -> None:
    assert played(f"{PLAYS};tell_end(0);{after}")[0] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "end", ["os._exit(0)", "sys.exit(0)", "fork(lambda:os._exit(0))"]
)
def test_an_end_before_the_first_scenario_is_no_verdict(end: str) -> None:
    code, out, err = played(end)
    assert (code, out) == (3, "playing\n")
    assert err == (
        "syncverify: no verdict: the process that plays ended by exit code 0 before its "
        "first scenario\n"
    )


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os._exit(0)", "ended by exit code 0, in two"),
        ("ctypes.string_at(0)", "ended by signal 11, in two"),
        ("os.kill(os.getpid(),9)", "ended by signal 9, in three"),
    ],
)
def test_a_death_in_a_scenario_that_comes_again_is_a_violation(
    end: str, how: str
) -> None:
    code, out, err = played(f"{PLAYS};{PLAYS};{end}", f"{PLAYS};{end}")
    token = re.findall(r"play (sv2-\S+)", out)[0]
    assert (code, err) == (1, "")
    assert out == (
        "playing\n"
        "VIOLATION: every_rank_finishes (process_died)\n"
        f"  the process that plays the ranks {how} runs of one scenario\n\n"
        f"  replay:     play {token}\n\n"
        "1 VIOLATION: found in run 2, which ended the search\n"
    )
    assert decode(token).cause == "process_died"


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_two_processes_that_somebody_ends_or_stops_are_no_verdict(
    tmp_path: Path, number: signal.Signals
) -> None:
    strike = f"os.kill(os.getpid(),{int(number)})"
    second = f"{PLAYS};is_new({str(tmp_path / 'mark')!r})and({strike});ends(0)"
    code, out, err = played(f"{PLAYS};{strike}", second)
    assert (code, "VIOLATION" in out) == (3, False)
    assert "A new process ends that run, so nothing is known" in err


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), [(15, 15), (9, 2)])
def test_a_process_that_somebody_ends_is_no_verdict(first: int, second: int) -> None:
    kill = "{0}==9 or signal.signal({0},signal.SIG_DFL);os.kill(os.getpid(),{0})"
    code, _, err = played(
        f"{PLAYS};{kill.format(first)}", f"{PLAYS};{kill.format(second)}"
    )
    assert code == 3
    assert f"the process that plays ended by signal {first} in run 1" in err
    assert f"A new process was lost as well: it ended by signal {second}." in err


@pytest.mark.long
def test_a_process_that_is_stopped_again_and_again_is_a_violation() -> None:
    stops = f"{PLAYS};os.kill(os.getpid(),signal.SIGSTOP);block()"
    code, out, _ = played(stops, stops)
    assert code == 1
    assert "VIOLATION: every_wait_completes (never_returns)\n" in out
    assert "does not answer: a signal has stopped it, in three runs" in out


@pytest.mark.long
@pytest.mark.parametrize("end", ["block()", "os._exit(0)"])
def test_a_process_that_is_lost_after_a_search_found_something_is_not_played_again(
    end: str,
) -> None:
    """What hangs then may be a change of the subject, played as its fix."""
    code, out, err = played(
        f"{PLAYS};owner_link.tell_owner(owner_link.Found);{PLAYS};{end}", "ends(0)"
    )
    assert (code, "VIOLATION" in out) == (1, False)
    assert err.startswith("syncverify: the process that plays ")
    assert err.endswith(
        "The violations that were found before are above; none has a fix.\n"
    )


SUBJECT = """
import ctypes, re, signal, threading

def blocks():
    ctypes.PyDLL(None).sleep(1000)

def backtracks():
    re.match(r"(a+)+$", "a" * 60 + "b")

def blocks_beside_a_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    blocks()

def blocks_deep(depth=150):
    blocks_deep(depth - 1) if depth else blocks()

def has_a_handler():
    for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
        signal.signal(number, print)
    blocks()
"""
BLOCKED_AT = "mine.py:5 in blocks: ctypes.PyDLL(None).sleep(1000)\n\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is asked")
@pytest.mark.parametrize(
    ("hang", "lines"),
    [
        ("blocks", BLOCKED_AT),
        pytest.param(
            "backtracks",
            'mine.py:8 in backtracks: re.match(r"(a+)+$", "a" * 60 + "b")\n',
            marks=pytest.mark.long,
        ),
        ("blocks_beside_a_thread", BLOCKED_AT),
        ("blocks_deep", BLOCKED_AT),
        ("has_a_handler", "in two runs of one scenario\n\n"),
    ],
)
def test_a_process_that_falls_silent_shows_the_line_of_the_subject(
    hang: str, lines: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(SUBJECT)
    act = f"{PLAYS};sys.path.insert(0,{str(tmp_path)!r});__import__('mine').{hang}()"
    code, out, err = played(act, act)
    assert (code, err) == (1, "")
    assert "VIOLATION: every_wait_completes (never_returns)\n" in out
    assert lines in out
    token = decode(re.findall(r"play (sv2-\S+)", out)[0])
    assert (token.property, token.cause) == ("every_wait_completes", "never_returns")
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["mine.py"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("end", "how"),
    [
        (BLOCKS, "does not answer: it is in C code that keeps Python from running"),
        (DIES, "ended by exit code 0"),
    ],
)
def test_a_bank_that_is_lost_gives_no_verdict(end: str, how: str) -> None:
    code, _, err = played(end, "bank")
    assert code == 3
    assert err.startswith(
        f"syncverify: no verdict: the process that plays {how} in run 1; to play that one: "
        "syncverify replay sv2-"
    )
    assert played(f"{PLAYS};ends(0)", "bank") == (0, "playing\n", "")


@pytest.mark.long
def test_a_process_that_has_torch_from_the_start_loses_no_verdict() -> None:
    """Python may import it before the command runs, as a `.pth` file asks for."""
    code, _, err = played(DIES, "bank", PREPARE="import torch")
    assert (code, "ended by exit code 0 in run 1" in err) == (3, True)


@pytest.mark.long
def test_a_process_of_the_child_that_was_lost_is_a_violation() -> None:
    code, out, _ = played("loses()", DIES)
    assert code == 1
    assert "VIOLATION: every_rank_finishes (process_died)\n" in out
    code, _, err = played("loses()")
    assert code == 3
    assert err.startswith(
        "syncverify: no verdict: the process that plays ended by signal 4 in run 1; to "
    )


@pytest.mark.long
@pytest.mark.parametrize("second", ["ends(0)", "ends(1)"])
def test_a_death_that_does_not_come_again_is_no_verdict(second: str) -> None:
    code, _, err = played(DIES, second)
    assert code == 3
    assert err.startswith(
        "syncverify: no verdict: the process that plays ended by exit code 0 in run 1; to "
        "play that one: play sv2-"
    )


@pytest.mark.long
def test_a_job_that_torchrun_restarts_plays_nothing() -> None:
    """torchrun ends with the code of its last start, which must not be 0 after a 1."""
    again = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "1"}
    code, out, complaint = played("ends(0)", LOCAL_RANK="0", **again)
    assert (code, out) == (3, "")
    assert complaint.startswith(
        "syncverify: torchrun starts this job again (restart 1)"
    )
    assert played("ends(0)", LOCAL_RANK="1", **again) == (3, "", "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "nnodes"),
    [
        (["--nnodes=1:2"], ""),
        (["--nnodes", "1:2", "--nproc-per-node=2"], "4"),
        (["--nnode=1:2"], ""),
        ([], "1:2"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no arguments are seen")
def test_a_job_whose_machines_may_change_plays_nothing(
    arguments: list[str], nnodes: str
) -> None:
    job = {"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "0", "PET_NNODES": nnodes}
    code, out, complaint = played("ends(0)", parent=arguments, **job)
    assert (code, out) == (2, "")
    assert complaint == (
        "syncverify: expected a fixed --nnodes, got 1:2: torchrun starts all ranks again "
        "when a machine joins or leaves, and the verdict is lost\n"
    )


@pytest.mark.long
@pytest.mark.parametrize("fixed", ["--nnodes=2", "--nnodes=2:2"])
def test_a_job_of_fixed_machines_plays(fixed: str) -> None:
    job = {"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "0"}
    assert played("ends(0)", parent=[fixed], **job)[0] == 0


@pytest.mark.long
def test_a_rank_of_torchrun_that_is_lost_is_not_played_alone() -> None:
    code, out, complaint = played(DIES, TORCHELASTIC_RUN_ID="x", RANK="3")
    assert (code, out) == (3, "playing\n")
    words = r"syncverify: no verdict: the process of rank 3 ended by exit code 0 in run 1; .* play sv2-"
    assert re.match(words, complaint)


@pytest.mark.long
def test_an_interrupt_ends_a_process_that_does_not_hear_it() -> None:
    running = start(f"signal.signal(2,signal.SIG_IGN);{BLOCKS}")
    assert [running.stdout.readline() for _ in range(2)] == ["playing\n", "blocks\n"]
    running.send_signal(signal.SIGINT)
    _, err = running.communicate()
    assert running.returncode == 130
    assert err == (
        "syncverify: interrupted; the process that played did not answer; what was found "
        "is above\n"
    )


@pytest.mark.long
def test_an_interrupt_right_after_the_start_is_passed_on() -> None:
    interrupts = "os.kill(os.getppid(),signal.SIGINT)"
    code, _, err = played(f"signal.signal(2,signal.SIG_IGN);{interrupts};block()")
    assert (code, "did not answer" in err) == (130, True)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(sys.platform != "linux", reason="SIGIO ends no process elsewhere")
def test_the_child_and_its_children_end_with_the_owner(number: int) -> None:
    """They hold stdout open while they live."""
    running = start("fork(block)")
    assert [running.stdout.readline() for _ in range(2)] == ["playing\n", "blocks\n"]
    running.send_signal(number)
    out, err = running.communicate()
    assert (running.returncode, out, err) == (-number, "", "")


@pytest.mark.long
@pytest.mark.skipif(
    sys.platform != "linux", reason="Linux lets a process adopt orphans"
)
@pytest.mark.parametrize("end", ["ends(0)", "os._exit(0)"])
def test_a_daemon_of_the_subject_ends_with_the_command(
    tmp_path: Path, end: str
) -> None:
    note = tmp_path / "pid"
    daemon = (
        f"os.fork() or (os.setsid(),open({str(note)!r},'w').write(str(os.getpid())),"
        "signal.pause())"
    )
    is_there = f"os.path.exists({str(note)!r}) and os.path.getsize({str(note)!r}) > 0"
    waits = f"[time.sleep(0.01) for _ in iter(lambda: {is_there}, True)]"
    played(f"{PLAYS};{daemon};{waits};{end}", f"{PLAYS};ends(0)")
    assert not Path(f"/proc/{note.read_text()}").exists()
