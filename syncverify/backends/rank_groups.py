"""The end of the process groups of a rank that is a process.

The only module of the backends that uses private functions of `torch.distributed`;
`tests/syncverify/backends/test_rank_groups.py` states the facts that it relies on.
"""

from __future__ import annotations

import torch.distributed as dist


def end_groups(*, is_clean: bool) -> None:
    """End all process groups of this process, if the subject has left any.

    A clean end waits until all ranks have played all collectives. After a fault some
    collective may have no peer: NCCL's `shutdown` would wait for its kernel for ever, and
    `abort` ends the kernel.

    Source:
        `abort` and `shutdown` in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
    """
    if not dist.is_initialized():
        return
    if is_clean:
        dist.destroy_process_group()
    else:
        dist.distributed_c10d._abort_process_group()  # noqa: SLF001
