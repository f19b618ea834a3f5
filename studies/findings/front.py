"""The finding on the front page: a command, and what it prints with a newer torch."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
from typing import Final

import click

from studies.documents import ROOT, write_part
from studies.findings.playing import Environment
from studies.rows import today

ARGUMENTS: Final = (
    "run",
    "fsdp2:gradient_divide_factor=2,force_sum_reduction_for_comms=true",
    *("--seed", "0", "--no-beyond", "--stop-at-first"),
)
_DIAGNOSIS: Final = re.compile(
    r"^VIOLATION: .*?^  replay: [^\n]*$", re.DOTALL | re.MULTILINE
)
_PACKAGES: Final = re.compile(r"(?<=\s)\S*/site-packages/")


def play(environment: Environment) -> None:
    """Play the command with a torch, and write its diagnosis into the README.

    Raises:
        ClickException: It finds nothing.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [environment.python, "-m", "syncverify", *ARGUMENTS, "--no-database"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    diagnosis = _DIAGNOSIS.search(done.stdout)
    if diagnosis is None:
        raise click.ClickException(f"expected a violation, got {done.stdout[-2000:]}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = _shown(
        date=today(),
        torch=environment.torch,
        seconds=round(seconds),
        diagnosis=_PACKAGES.sub("", diagnosis.group()),
    )
    write_part(ROOT / "README.md", "front", text)


def _shown(*, date: str, torch: str, seconds: int, diagnosis: str) -> str:
    """Return the command, the seconds and the diagnosis as Markdown."""
    return f"""\
```console
$ pip install torch=={torch}
$ syncverify {shlex.join(ARGUMENTS)}
```

It finds this in the first scenario, in {seconds} s of processor time on a CPU ({date}):

```text
{diagnosis}
```
"""
