"""The flags of a bucket, which tell whether some rank has used a member."""

from collections.abc import Iterable
from itertools import groupby

import torch


def write_flags(flags: torch.Tensor, used: Iterable[bool]) -> None:
    """Write, on the current stream, which members this rank has used.

    The sum of the flags, of shape (members,), counts ranks in a dtype that may round. Only
    0 is exact, and only 0 is needed. A copy of host memory would make the host wait for the
    device, and cannot be captured in a CUDA graph.
    """
    start = 0
    for is_used, run in groupby(used):
        end = start + sum(1 for _ in run)
        flags[start:end].fill_(is_used)
        start = end
