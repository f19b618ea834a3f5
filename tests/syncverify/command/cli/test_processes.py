"""The command as others start it: through the shell, and not always to the end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import syncverify.__main__
import syncverify.command.main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
MODULE = [sys.executable, "-m", "syncverify"]


def start(*arguments: str, folder: Path, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*MODULE, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_an_interrupt_before_the_command_line_runs_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_object: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(syncverify.command.main, "main", interrupted)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as caught:
        syncverify.__main__.main()
    assert caught.value.code == 130
    assert capsys.readouterr() == ("", "syncverify: interrupted\n")


TELLS = '''
import os
from syncverify.synchronizer import GradientSynchronizer

descriptors = []

class Tells(GradientSynchronizer):
    """Opens a FIFO in its first scenario."""

    def bind(self):
        super().bind()
        if not descriptors:
            descriptors.append(os.open("plays", os.O_WRONLY))
'''


@pytest.mark.long
@pytest.mark.parametrize(("backend", "jobs"), [("gloo", "1"), ("sim", "2")])
def test_interrupt_leaves_no_process_behind(
    tmp_path: Path, backend: str, jobs: str
) -> None:
    """As Ctrl-C does, it reaches workers too; they hold stdout open while they live."""
    (tmp_path / "mine.py").write_text(TELLS)
    os.mkfifo(tmp_path / "plays")
    running = start(
        "run", "mine:Tells", "--backend", backend, "--json", "report.json",
        "--examples", "100000", "--seed", "1", "--ranks", "2", "--jobs", jobs,
        folder=tmp_path, start_new_session=True,
    )  # fmt: skip
    try:
        with (tmp_path / "plays").open():  # waits until a rank plays
            os.killpg(running.pid, signal.SIGINT)
            _, err = running.communicate(timeout=60)
    except BaseException:
        os.killpg(running.pid, signal.SIGKILL)  # or it would outlive this test as well
        running.communicate()
        raise
    assert running.returncode == 130
    assert err.strip() == "syncverify: interrupted"
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["interrupted"], report["violations"]) == (True, [])


@pytest.mark.long
def test_reader_that_stops_reading_gets_no_traceback(tmp_path: Path) -> None:
    """As in `syncverify run ... | head -1`."""
    running = start(
        "run", "synchronizer", "--examples", "2", "--seed", "0", "--no-beyond",
        folder=tmp_path,
    )  # fmt: skip
    assert running.stdout.readline().startswith("verifying synchronizer")
    running.stdout.close()
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait() == 141


LOSES_INTERRUPTS = """
import os, signal, threading

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0)  # the interrupt falls in here, and is dropped

def factory(groups, bucket_size_mb, require_accumulations): ...

Finalized()
threading.Event().wait()
"""


@pytest.mark.long
def test_interrupt_that_python_drops_ends_the_command_all_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "loses.py").write_text(LOSES_INTERRUPTS)
    running = start("run", "loses:factory", folder=tmp_path)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err.strip() == "syncverify: interrupted"
