"""A process that sleeps with all that it started is lost, though Python runs in it."""

import re
import sys
from pathlib import Path

import pytest

from tests.syncverify.command.played_commands import PLAYS, played

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.skipif(
        sys.platform != "linux", reason="elsewhere nobody sees it sleep"
    ),
]
SHORT = {"stillness": 1.0}
WORK = "all(True for _ in range(15*10**6))"  # half a second of processor time or more


@pytest.mark.long
def test_an_import_that_sleeps_is_no_verdict_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import time\n\ntime.sleep(1000)\n")
    act = f"sys.path.insert(0,{str(tmp_path)!r});__import__('mine')"
    code, out, err = played(act, patience=SHORT)
    assert (code, out) == (3, "playing\n")
    assert re.fullmatch(
        r"syncverify: no verdict: the process that plays has slept for 1 s before its first "
        r"scenario\n +\S*mine\.py:3 in <module>: time\.sleep\(1000\)\n",
        err,
    )


@pytest.mark.long
def test_a_sleep_between_scenarios_that_comes_again_is_a_violation() -> None:
    act = f"{PLAYS};time.sleep(1000)"
    code, out, err = played(act, act, patience=SHORT)
    assert (code, err) == (1, "")
    assert "VIOLATION: every_wait_completes (never_returns)\n" in out
    assert "has slept for 1 s, in two runs of one scenario" in out
    assert played(act, f"{PLAYS};ends(0)", patience=SHORT)[0] == 3


@pytest.mark.long
@pytest.mark.parametrize(
    "works",
    [WORK, f"os.waitpid(os.fork() or ({WORK},os._exit(0)),0)"],
    ids=["by itself", "by a child"],
)
def test_a_process_that_works_is_not_lost(works: str) -> None:
    act = f"{works};{PLAYS};{works};ends(0)"
    assert played(act, patience={"stillness": 0.4})[0] == 0


@pytest.mark.long
def test_a_wait_for_another_command_is_not_lost() -> None:
    statement = "owner_link.tell_owner(owner_link.Waits)"
    waits = ";".join([f"naps(0.3);{statement}"] * 6)
    assert played(f"{waits};{PLAYS};ends(0)", patience=SHORT)[0] == 0
