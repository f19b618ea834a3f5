"""Signals between threads."""

from syncverify.processes.thread_signal import Signal


def test_a_signal_is_taken_once_and_never_before_it_is_given() -> None:
    signal = Signal()
    assert not signal.take(timeout=0)
    signal.give()
    signal.give()
    assert signal.take()
    assert not signal.take(timeout=0)
