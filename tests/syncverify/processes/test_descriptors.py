"""Ranks with sockets get enough descriptors, or the command says that they do not."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource
from syncverify.errors import SyncverifyError
from syncverify.processes.system import require_descriptors

resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
try:
    require_descriptors()
except SyncverifyError as error:
    print(type(error).__name__, error)
else:
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def answer(soft: int, hard: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(soft=soft, hard=hard)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.long
def test_limit_is_raised_as_far_as_needed_or_refused() -> None:
    assert answer(64, 900) == "(256, 900)"
    assert answer(500, 900) == "(500, 900)"
    assert answer(40, 64) == (
        "EnvironmentNotSupportedError expected a limit of 256 open files or more, which "
        "ranks with sockets need, got 64; raise it by `ulimit -n 1024`, or play on sim"
    )
