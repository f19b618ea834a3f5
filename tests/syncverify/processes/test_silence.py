"""A silent process is stuck, works, or waits for its machine."""

import pytest

from syncverify.processes import silence
from syncverify.processes.silence import Silence

BOUND = 10.0


def seconds_until_a_hang_shows(
    monkeypatch: pytest.MonkeyPatch, share: float, *, is_ready: bool = False
) -> float:
    """Return the silence after which a process that uses such a share is stuck."""
    used = [0.0]
    monkeypatch.setattr(silence, "processor_seconds", lambda _pid: used[0])
    monkeypatch.setattr(silence.ThreadDemand, "look", lambda *_, **__: (0.0, is_ready))
    observed = Silence(1)
    while not observed.shows_a_hang(BOUND):
        used[0] += share * 0.5
        observed.go_on(0.5)
    return observed.seconds


@pytest.mark.parametrize(
    ("share", "is_ready", "expected"),
    [
        (0.0, False, 10.0),  # sleeps
        (1.0, False, 10.0),  # spins
        (0.9, False, 10.0),  # spins since a second after its last word
        (0.4, False, 20.0),  # spins on a machine that others use
        (0.125, False, 64.0),
        (0.0, True, 120.0),  # waits for a page of memory, or for a processor
    ],
)
def test_a_machine_that_is_busy_is_given_time(
    monkeypatch: pytest.MonkeyPatch, share: float, *, is_ready: bool, expected: float
) -> None:
    assert seconds_until_a_hang_shows(monkeypatch, share, is_ready=is_ready) == expected


def test_a_process_that_worked_before_it_fell_asleep_is_stuck_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = [0.0]
    monkeypatch.setattr(silence, "processor_seconds", lambda _pid: used[0])
    monkeypatch.setattr(silence.ThreadDemand, "look", lambda *_, **__: (0.0, False))
    observed = Silence(1)
    used[0] = 3.0
    observed.go_on(4.0)
    observed.go_on(6.0)
    assert observed.shows_a_hang(BOUND)


def test_a_word_ends_a_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "processor_seconds", lambda _pid: 0.0)
    monkeypatch.setattr(silence.ThreadDemand, "look", lambda *_, **__: (0.0, False))
    observed = Silence(1)
    for seconds in (4.0, 9.0, 2.0):
        observed.go_on(seconds)
        assert not observed.shows_a_hang(BOUND)
        observed.end()
    assert (observed.seconds, observed.longest) == (0.0, 9.0)
