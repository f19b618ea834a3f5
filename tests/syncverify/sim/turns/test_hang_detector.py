"""A hanging rank is told from a slow one by the processor time that it spends."""

from collections.abc import Iterator

import pytest

from syncverify.sim.turns import hang_detector
from syncverify.sim.turns.hang_detector import HangDetector

WINDOW_SECONDS = 5.0


def answers(
    monkeypatch: pytest.MonkeyPatch, *windows: tuple[float, int]
) -> Iterator[bool]:
    """Ask after windows of so much processor time, at so many events each."""
    clock, events = [0.0], [0]
    monkeypatch.setattr(hang_detector.time, "process_time", lambda: clock[0])
    asked = HangDetector(WINDOW_SECONDS, lambda: events[0])
    for seconds, count in windows:
        clock[0] += seconds
        events[0] = count
        yield asked.is_over()


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([(5.0, 0)], [True]),  # spins
        ([(0.0, 0)], [True]),  # waits for ever
        ([(5.0, 1), (5.0, 2), (5.0, 2)], [False, False, True]),  # works, then spins
        ([(1.0, 0)] * 5, [False] * 4 + [True]),  # spins on a fifth of a processor
        ([(0.3, 0), (0.3, 1), (0.0, 1)], [False, False, True]),  # slow, then waits
        ([(0.3, 0)] * 12, [False] * 11 + [True]),  # sleeps and wakes
    ],
)
def test_it_ends_with_what_the_processor_did(
    monkeypatch: pytest.MonkeyPatch,
    windows: list[tuple[float, int]],
    expected: list[bool],
) -> None:
    assert list(answers(monkeypatch, *windows)) == expected
