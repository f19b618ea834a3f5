"""An interrupt waits while a child process starts."""

import signal

import pytest

from syncverify.processes.interrupts import interrupts_blocked


def test_interrupt_waits_for_the_end_of_the_block() -> None:
    reached: list[str] = []

    def interrupt() -> None:
        with interrupts_blocked():
            signal.raise_signal(signal.SIGINT)
            reached.append("the end of the block")

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert reached
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
