"""Nothing hangs: a subject that does not come back ends as a violation, and soon.

Waits for ever are bounded by the backends themselves. The tests' own bound is pytest's
timeout, which no test comes near to.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch.distributed as dist

from syncverify.errors import RunEndedError
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.sim import SimBackend
from syncverify.processes import silence
from syncverify.report.run import explanation_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.subjects.subject import resolve
from tests.programs import violations

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 1.0
TWO_BUCKETS = Scenario(
    mesh=MeshSpec((2,), ("dp",)),
    parameters=(
        ParameterSpec("p0", (3,), ("R",)),
        ParameterSpec("p1", (5,), ("R",)),
    ),
    accumulations=(1, 1),
    bucket_cap_bytes=1,
)


class Spins(ViewBuckets):
    """Rank 1 computes for ever."""

    def wait(self) -> None:
        super().wait()
        forever = dist.get_rank() == 1
        while forever:
            pass


class WaitsForItself(ViewBuckets):
    """Rank 1 waits for an event that no thread sets."""

    def wait(self) -> None:
        super().wait()
        if dist.get_rank() == 1:
            threading.Event().wait()


class SkipsCollectives(ViewBuckets):
    """Rank 0 alone launches collectives."""

    def launch(self, bucket: Bucket) -> None:
        if dist.get_rank() == 0:
            super().launch(bucket)


class SkipsFirstCollective(ViewBuckets):
    """Rank 1 skips the first bucket."""

    def launch(self, bucket: Bucket) -> None:
        if dist.get_rank() == 0 or bucket is not self.buckets[0]:
            super().launch(bucket)


class OwnEnd(BaseException):
    """An error of the subject that is no `Exception`."""


def raising(error: BaseException) -> type[ViewBuckets]:
    """Make a class in whose `wait()` rank 1 raises an error."""

    class Raises(ViewBuckets):
        def wait(self) -> None:
            if dist.get_rank() == 1:
                raise error
            super().wait()

    return Raises


class ClosesGenerators(ViewBuckets):
    """Each rank raises the error by which Python ends a generator."""

    def bind(self) -> None:
        raise GeneratorExit


class Exits(ViewBuckets):
    """The process of rank 1 ends."""

    def wait(self) -> None:
        if dist.get_rank() == 1:
            os._exit(3)
        super().wait()


class WaitsForAProcess(ViewBuckets):
    """Rank 1 waits for a process that never ends."""

    def wait(self) -> None:
        super().wait()
        if dist.get_rank() == 1:
            subprocess.run(["sleep", "infinity"])


class Builds(ViewBuckets):
    """Right: rank 1 builds something that takes longer than a window."""

    def bind(self) -> None:
        super().bind()
        if dist.get_rank() == 1:
            subprocess.run([sys.executable, "-S", "-c", COMPILER], check=True)


COMPILER = """
import time
while time.process_time() < 2.5:
    pass
"""


# Subject, cause, ranks at fault, and the place in the report.
ANYWHERE = [
    (
        Spins, "never_returns", (1,),
        r"\S*quality/test_hangs\.py:\d+ in wait: (pass|while .*)",
    ),
    (
        WaitsForItself, "never_returns", (1,),
        r"\S*quality/test_hangs\.py:\d+ in wait: threading\.Event\(\)\.wait\(\)",
    ),
    (
        SkipsCollectives, "deadlock", (1,),
        r"rank 0: .* at \S*bases/view_buckets\.py:\d+ in launch",
    ),
    (
        ClosesGenerators, "raised_GeneratorExit", (0,),
        r"\S*quality/test_hangs\.py:\d+ in bind: raise GeneratorExit",
    ),
    *(
        (
            raising(error), f"raised_{type(error).__name__}", (1,),
            r"\S*quality/test_hangs\.py:\d+ in wait: raise error",
        )
        # Ctrl-C, an error of an own class, and one that may have been kept from an earlier run.
        for error in (ValueError("no bucket"), KeyboardInterrupt(), OwnEnd(), RunEndedError())
    ),
]  # fmt: skip
SIMULATED = (
    SkipsFirstCollective, "collective_mismatch", (0, 1),
    r"rank 1: all_reduce SUM of 3 x float32.* at \S*bases/view_buckets\.py:\d+ in launch",
)  # fmt: skip
IN_PROCESSES = [
    # gloo ends a process if its buffer is too small for the arriving data.
    (SkipsFirstCollective, "process_died", (1,), "rank 1: ended by signal 6"),
    (
        WaitsForAProcess,
        "never_returns",
        (1,),
        r"\S*quality/test_hangs\.py:\d+ in wait: subprocess\.run",
    ),
    (Exits, "process_died", (1,), "rank 1: ended by exit code 3"),
]
PROPERTIES = {
    "never_returns": "every_wait_completes",
    "deadlock": "every_wait_completes",
    "collective_mismatch": "collectives_match_across_ranks",
}


def named(cases: list[tuple[Any, ...]]) -> Any:
    names = ("subject", "cause", "ranks", "place")
    return pytest.mark.parametrize(
        names, cases, ids=[f"{c[0].__name__}-{c[1]}" for c in cases]
    )


@pytest.fixture(scope="module")
def sim() -> SimBackend:
    backend = SimBackend(hang_timeout_seconds=PATIENCE_SECONDS)
    backend.run(TWO_BUCKETS, resolve(ViewBuckets))  # torch's first steps take seconds
    return backend


@pytest.fixture(scope="module")
def gloo() -> Iterator[GlooBackend]:
    """One backend for all tests: none may leave it in a state that hurts the next."""
    before = descendants()
    backend = GlooBackend(hang_timeout_seconds=PATIENCE_SECONDS)
    yield backend
    backend.close()
    assert descendants() == before


def descendants() -> set[int]:
    """List the processes that this one has started, but for the templates of workers, which stay."""
    own = psutil.Process()
    return {
        each.pid
        for each in own.children(recursive=True)
        if each.ppid() != own.pid
        or "syncverify.processes.template" not in command(each)
    }


def command(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess):  # it has just ended
        return process.cmdline()
    return []


def assert_ends(
    backend: Any, subject: type[Any], cause: str, ranks: tuple[int, ...], place: str
) -> None:
    first, *_ = violations(subject, TWO_BUCKETS, backend)
    assert first.identity == (PROPERTIES.get(cause, "every_rank_finishes"), cause)
    assert first.ranks == ranks
    reported = FoundViolation(first, TWO_BUCKETS)
    text = explanation_of(
        reported, subject=subject.__name__, backend=backend.name
    ).text()
    assert re.search(f"^ +{place}", text, re.MULTILINE), text
    assert violations(ViewBuckets, TWO_BUCKETS, backend) == []  # no poison is left


@pytest.mark.long
@named([*ANYWHERE, SIMULATED])
def test_simulated_run_ends(
    sim: SimBackend, subject: type[Any], cause: str, ranks: tuple[int, ...], place: str
) -> None:
    before = descendants()
    assert_ends(sim, subject, cause, ranks, place)
    assert descendants() == before


@pytest.mark.long
@named([*ANYWHERE, *IN_PROCESSES])
def test_run_on_real_processes_ends(
    gloo: GlooBackend,
    subject: type[Any],
    cause: str,
    ranks: tuple[int, ...],
    place: str,
) -> None:
    violations(ViewBuckets, TWO_BUCKETS, gloo)
    before = descendants()
    assert_ends(gloo, subject, cause, ranks, place)
    violations(ViewBuckets, TWO_BUCKETS, gloo)
    assert len(descendants()) == len(before)  # a dead or hanging process is replaced


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="other kernels show no children")
@pytest.mark.parametrize("name", ["sim", "gloo"])
def test_a_rank_that_waits_for_a_compiler_is_no_hang(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "_MAX_BOUNDS", 10**6)  # on a busy machine
    assert violations(Builds, TWO_BUCKETS, request.getfixturevalue(name)) == []


TRACED_AFTER_A_HANG = """
import sys
from tests.quality import test_hangs as hangs

backend = hangs.SimBackend(hang_timeout_seconds=hangs.PATIENCE_SECONDS)
subject = hangs.resolve(hangs.WaitsForItself)
assert backend.run(hangs.TWO_BUCKETS, subject).fault is not None
lines = []

def trace(frame, event, argument):
    lines.append(frame.f_lineno)
    return trace

sys.settrace(trace)
assert (lambda: "called")() == "called"
sys.settrace(None)
assert lines
"""


@pytest.mark.long
def test_a_rank_that_never_returns_leaves_trace_functions_usable() -> None:
    """Python 3.11 repeated an interrupt that a blocked thread did not notice for ever.

    An interpreter that repeats it hears no signal, so it is another process.
    """
    subprocess.run(
        [sys.executable, "-c", TRACED_AFTER_A_HANG],
        cwd=Path(__file__).parents[2],
        check=True,
        timeout=200,
    )
