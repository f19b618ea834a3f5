"""Rules that the command lines of all benchmarks share."""

import subprocess
import sys
from pathlib import Path

import pytest

LOSES_INTERRUPTS = """
import os, signal, threading
import click
from studies.benchmarks.command import run_command

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


@pytest.mark.long
def test_interrupt_that_python_drops_ends_the_command_all_the_same() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOSES_INTERRUPTS],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1] == "python -m some.benchmark: interrupted"
