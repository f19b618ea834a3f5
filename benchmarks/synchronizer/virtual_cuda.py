"""Streams of `torch.cuda` that do nothing, for code that knows no other device.

On CPU the host itself runs all kernels in order, so that this is what they should do.
"""

from contextlib import nullcontext
from typing import Any

import torch


class _Stream:
    def __init__(self, *_: object, **__: object) -> None: ...

    def wait_stream(self, stream: object) -> None: ...


def install() -> None:
    """Replace the streams of `torch.cuda` in this process, for good."""
    cuda: Any = torch.cuda
    only = _Stream()
    cuda.Stream = _Stream
    cuda.current_stream = lambda *_: only
    cuda.stream = lambda *_: nullcontext()
