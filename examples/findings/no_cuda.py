"""Lets code that takes streams from `torch.cuda` run without a GPU.

On a CPU operators are done when they return, so a stream has nothing to order.
"""

from contextlib import nullcontext

import torch


class NoStream:
    def wait_stream(self, stream: "NoStream") -> None:
        pass


def install() -> None:
    torch.cuda.Stream = NoStream
    torch.cuda.current_stream = NoStream
    torch.cuda.stream = lambda stream: nullcontext()
    torch.cuda.current_device = lambda: torch.device("cpu")
