"""What the benchmarks' command lines have in common."""

import subprocess
import sys
from pathlib import Path

LOSES_INTERRUPTS = """
import os, signal, threading
import click
from benchmarks.command import run_command

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0)  # the interrupt falls in here, and is dropped

@click.command()
def command():
    Finalized()
    threading.Event().wait()

run_command(command, "some.benchmark", failures=())
"""


def test_interrupt_that_python_drops_ends_the_command_all_the_same() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOSES_INTERRUPTS],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1] == "python -m some.benchmark: interrupted"
