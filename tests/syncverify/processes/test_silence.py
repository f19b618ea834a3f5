"""A silence is a hang by the processor time that a process, or a rank, spends in it."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from syncverify.processes import silence
from syncverify.processes.process_state import Demand, Work
from syncverify.processes.silence import Silence, SilenceKind

BOUND = 10.0
WINDOW = 5.0


class Shown:
    """A process as the system shows it, with the work of its descendants."""

    def __init__(self, looks: list[Work] | None = None, pid: int | None = None) -> None:
        self.pid = pid
        self.used = 0.0
        self.num_looks = 0
        self.looks = looks or []

    def processor_seconds(self) -> float:
        return self.used

    def work_of_descendants(self) -> Work:
        self.num_looks += 1
        if not self.looks:
            return Work()
        return self.looks[min(self.num_looks, len(self.looks)) - 1]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shown]:
    """Make a process; each look finds the queued seconds and readiness of its threads."""

    def make(*looks: tuple[float, bool]) -> Shown:
        shown = iter(looks)
        last = [looks[-1]]

        def look(*_: Any, **__: Any) -> Demand:
            last[0] = next(shown, last[0])
            return Demand(*last[0])

        monkeypatch.setattr(silence.ThreadDemand, "look", look)
        return Shown(pid=os.getpid())

    return make


def seconds_until_a_hang_shows(process: Shown, share: float) -> float:
    """Return the silence after which a process that uses such a share is stuck."""
    observed = Silence(process)
    while not observed.shows_a_hang(BOUND):
        process.used += share * 0.5
        observed.go_on(0.5)
    return observed.seconds


@pytest.mark.parametrize(
    ("share", "is_ready", "expected"),
    [
        (0.0, False, 10.0),  # sleeps
        (1.0, False, 10.0),  # spins
        (0.9, False, 10.0),  # spins since a second after its last word
        (0.375, False, 24.0),  # spins on a machine that others use
        (0.125, False, 72.0),
        (0.0, True, 120.0),  # waits for a page of memory, or for a processor
    ],
)
def test_a_machine_that_is_busy_is_given_time(
    threads: Callable[..., Shown], share: float, *, is_ready: bool, expected: float
) -> None:
    process = threads((0.0, is_ready))
    assert seconds_until_a_hang_shows(process, share) == expected


def test_a_process_that_worked_before_it_fell_asleep_is_stuck_at_once() -> None:
    process = Shown()
    observed = Silence(process)
    process.used = 3.0
    observed.go_on(4.0)
    observed.go_on(6.0)
    assert observed.shows_a_hang(BOUND)


def test_looks_that_follow_each_other_at_once_count_as_one() -> None:
    """The kernel's clock is too coarse for each: a spinning process would seem idle."""
    process = Shown()
    observed = Silence(process)
    for _ in range(1000):
        process.used += 0.004
        observed.go_on(0.01)
    assert (observed.idle_seconds, observed.shows_a_hang(BOUND)) == (0.0, False)


def findings(
    process: Shown, *windows: tuple[float, int], is_silent: bool = False
) -> list[SilenceKind]:
    """Look after windows, each with its processor time and number of events."""
    observed, found = Silence(process, tick=0.0), list[SilenceKind]()
    observed.end(0)
    for seconds, count in windows:
        process.used += seconds
        if not observed.has_moved(count):
            observed.go_on(WINDOW, is_silent=is_silent)
        found.append(observed.finding(WINDOW))
    return found


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([(5.0, 0)], ["spent"]),  # spins
        ([(0.0, 0)], ["idle"]),  # waits for ever
        ([(5.0, 1), (5.0, 2), (5.0, 2)], ["slow", "slow", "spent"]),
        ([(1.0, 0)] * 5, ["slow"] * 4 + ["spent"]),  # spins on a fifth of a processor
        ([(0.3, 0), (0.3, 1), (0.0, 1)], ["slow", "slow", "idle"]),
        ([(0.3, 0)] * 12, ["slow"] * 11 + ["endless"]),  # sleeps and wakes
    ],
)
def test_silence_is_judged_by_what_the_processor_did(
    windows: list[tuple[float, int]], expected: list[SilenceKind]
) -> None:
    assert findings(Shown(), *windows) == expected


@pytest.mark.parametrize(
    ("waited", "is_ready", "expected"),
    [(0.2, False, "idle"), (0.3, False, "slow"), (0.0, True, "slow")],
)
def test_a_rank_that_waits_for_a_processor_is_slow(
    threads: Callable[..., Shown],
    waited: float,
    expected: SilenceKind,
    *,
    is_ready: bool,
) -> None:
    assert findings(threads((waited, is_ready)), (0.0, 0)) == [expected]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([Work()], ["idle"]),  # no descendants, or one that sleeps from the start
        ([Work(9.0), Work(9.0)], ["slow", "idle"]),  # worked once
        ([Work(5.0 * n) for n in range(1, 13)], ["slow"] * 11 + ["endless"]),
        # Waited for a processor.
        ([Work(0.0, is_ready=True), Work()], ["slow", "idle"]),
        ([Work(9.0), Work(1.0)], ["slow", "slow"]),  # one has ended
    ],
)
def test_a_rank_whose_descendants_work_is_slow(
    looks: list[Work], expected: list[SilenceKind]
) -> None:
    assert findings(Shown(looks), *[(0.0, 0)] * len(looks)) == expected


@pytest.mark.parametrize(
    ("is_silent", "expected"),
    [(False, "slow"), (True, "idle")],  # threads of a silent rank wake up for the GIL
)
def test_a_rank_that_goes_on_when_its_last_descendant_ends_is_slow(
    threads: Callable[..., Shown], expected: SilenceKind, *, is_silent: bool
) -> None:
    process = threads((0.0, False), (0.0, True))
    assert findings(process, (0.0, 0), is_silent=is_silent) == [expected]


def test_a_sleep_among_signs_of_life_has_a_bound_of_its_own() -> None:
    observed = Silence(Shown(), tick=WINDOW)
    for _ in range(3):
        observed.go_on(WINDOW, is_silent=False)
        assert observed.finding(BOUND, idle_bound=20.0) == "slow"
    observed.go_on(WINDOW, is_silent=False)
    assert observed.finding(BOUND, idle_bound=20.0) == "idle"
