"""Signals between threads."""

import threading

from syncverify.processes.thread_signal import Signal


def test_a_signal_is_taken_once_and_never_before_it_is_given() -> None:
    signal = Signal()
    assert not signal.take(timeout=0)
    signal.give()
    signal.give()
    assert signal.take()
    assert not signal.take(timeout=0)


def test_a_thread_takes_what_another_one_gives() -> None:
    there, back = Signal(), Signal()

    def answer() -> None:
        there.take()
        back.give()

    thread = threading.Thread(target=answer)
    thread.start()
    assert not back.take(timeout=0)
    there.give()
    assert back.take()
    thread.join()
