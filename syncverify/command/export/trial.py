"""The trial of a script: run it, so that a report says only what the script shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from syncverify.command.process_exit import VIOLATION

# A script imports torch once for each rank, and plays a few micro-batches.
_TIME_LIMIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Trial:
    """The end of a script.

    Attributes:
        code: Exit code; None if it did not end in time.
        output: Its standard output, by rank: the ranks themselves print in any order.
        complaint: Its standard error.
    """

    code: int | None
    output: str
    complaint: str

    @property
    def shows_wrong_gradient(self) -> bool:
        """Tell whether a wrong gradient, and nothing else, ended the script."""
        return self.code == VIOLATION and " is WRONG " in self.output

    @property
    def last_words(self) -> str:
        """Return one line about the end of a script that shows no wrong gradient."""
        if self.code is None:
            return f"it did not end within {_TIME_LIMIT_SECONDS:.0f} s"
        lines = self.complaint.strip().splitlines()
        if self.code and lines:
            return lines[-1]
        return f"exit code {self.code}: the gradient is right there"


def try_script(script: Path, python: Sequence[str] = (sys.executable,)) -> Trial:
    """Run a script with a Python, and end it with all of its ranks."""
    with subprocess.Popen(
        [*python, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # one group of processes, which can end together
    ) as process:
        try:
            output, complaint = process.communicate(timeout=_TIME_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            return Trial(None, "", "")
        finally:
            with suppress(ProcessLookupError):  # the usual case: all have ended
                os.killpg(process.pid, signal.SIGKILL)
    by_rank = sorted(re.split(r"^(?=rank \d)", output, flags=re.MULTILINE))
    return Trial(process.returncode, "".join(by_rank), complaint)
