"""Worker processes are started, and ended by nobody but their parent."""

import signal

from syncverify.backends.pool import WorkerProcess


def test_interrupt_does_not_reach_a_worker_that_is_not_ready_yet() -> None:
    worker = WorkerProcess()
    try:
        worker.process.send_signal(signal.SIGINT)
        worker.await_ready()
    finally:
        worker.end()


def test_interrupts_are_blocked_for_no_longer_than_a_start() -> None:
    worker = WorkerProcess()
    worker.end()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
