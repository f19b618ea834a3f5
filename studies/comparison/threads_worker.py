"""A process for ranks that are threads: `python -m comparison.threads_worker`."""

import os
import signal
import sys
from multiprocessing.connection import Connection

import torch

from comparison.threads import serve
from syncverify.backends.messages import Ready


def main(descriptor: int) -> None:
    """Serve on an inherited socket.

    Args:
        descriptor: File descriptor of the connection to the owner.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides when to end
    torch.set_num_threads(1)
    connection = Connection(descriptor)
    try:
        connection.send(Ready())
        serve(connection)
    finally:
        os._exit(0)  # threads that wait for a missing rank cannot be joined


if __name__ == "__main__":
    main(int(sys.argv[1]))
