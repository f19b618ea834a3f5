"""A hanging rank is told from a slow one by the processor time that it spends."""

import os
from collections.abc import Iterator

import pytest

from syncverify.processes import hang_detector
from syncverify.processes.hang_detector import HangDetector
from syncverify.processes.process_state import Work

WINDOW_SECONDS = 5.0


def findings(*windows: tuple[float, int]) -> Iterator[str]:
    """Look after windows of so much processor time, at so many events each."""
    clock, events = [0.0], [0]
    asked = HangDetector(WINDOW_SECONDS, lambda: events[0], lambda: clock[0])
    for seconds, count in windows:
        clock[0] += seconds
        events[0] = count
        yield asked.look()


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([(5.0, 0)], ["spent"]),  # spins
        ([(0.0, 0)], ["idle"]),  # waits for ever
        ([(5.0, 1), (5.0, 2), (5.0, 2)], ["moved", "moved", "spent"]),
        ([(1.0, 0)] * 5, ["slow"] * 4 + ["spent"]),  # spins on a fifth of a processor
        ([(0.3, 0), (0.3, 1), (0.0, 1)], ["slow", "moved", "idle"]),
        ([(0.3, 0)] * 12, ["slow"] * 11 + ["endless"]),  # sleeps and wakes
    ],
)
def test_it_finds_what_the_processor_did(
    windows: list[tuple[float, int]], expected: list[str]
) -> None:
    assert [*findings(*windows)] == expected


@pytest.mark.parametrize(
    ("waited", "is_ready", "expected"),
    [(0.2, False, "idle"), (0.3, False, "slow"), (0.0, True, "slow")],
)
def test_a_rank_that_waits_for_a_processor_is_slow(
    waited: float, expected: str, monkeypatch: pytest.MonkeyPatch, *, is_ready: bool
) -> None:
    monkeypatch.setattr(
        hang_detector.ThreadDemand, "look", lambda *_, **__: (waited, is_ready)
    )
    asked = HangDetector(
        WINDOW_SECONDS, lambda: 0, lambda: 0.0, pid=os.getpid(), helpers=Work
    )
    assert asked.look() == expected


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(0.0, False)], ["idle"]),  # no descendants, or one that sleeps from the start
        ([(9.0, False), (9.0, False)], ["slow", "idle"]),  # worked once
        ([(5.0 * n, False) for n in range(1, 13)], ["slow"] * 11 + ["endless"]),
        ([(0.0, True), (0.0, False)], ["slow", "idle"]),  # waited for a processor
        ([(9.0, False), (1.0, False)], ["slow", "slow"]),  # one has ended
    ],
)
def test_a_rank_whose_descendants_work_is_slow(
    looks: list[tuple[float, bool]], expected: list[str]
) -> None:
    works = iter([Work(*each) for each in looks])
    asked = HangDetector(
        WINDOW_SECONDS, lambda: 0, lambda: 0.0, helpers=lambda: next(works)
    )
    assert [asked.look() for _ in looks] == expected


@pytest.mark.parametrize(
    ("is_silent", "expected"),
    [(False, "slow"), (True, "idle")],  # threads of a silent rank wake up for the GIL
)
def test_a_rank_that_goes_on_when_its_last_descendant_ends_is_slow(
    expected: str, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    looks = iter([(0.0, False), (0.0, True)])
    monkeypatch.setattr(
        hang_detector.ThreadDemand, "look", lambda *_, **__: next(looks)
    )
    asked = HangDetector(
        WINDOW_SECONDS, lambda: 0, lambda: 0.0, pid=os.getpid(), helpers=Work
    )
    assert asked.look(is_silent=is_silent) == expected


def test_descendants_are_looked_at_only_where_a_hang_is_near() -> None:
    clock, looks = [0.0], [0]

    def look() -> Work:
        looks[0] += 1
        return Work()

    asked = HangDetector(WINDOW_SECONDS, lambda: 0, lambda: clock[0], helpers=look)
    clock[0] += 1.0
    assert (asked.look(), looks[0]) == ("slow", 0)
    assert (asked.look(), looks[0]) == ("idle", 1)


def test_a_turn_is_over_when_its_rank_hangs() -> None:
    clock = [0.0]
    asked = HangDetector(WINDOW_SECONDS, lambda: 0, lambda: clock[0])
    clock[0] = 1.0
    assert not asked.is_over()
    assert asked.is_over()
