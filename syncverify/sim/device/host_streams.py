"""Streams where work runs at once: of real processes on the CPU, and of `fake`.

A subject may take streams and events from `torch.cuda` by name. Here they are objects that
record nothing: every operator has run when the next line runs, so all orders hold already, and
no order is judged. A GPU is still missing: `torch.cuda.is_available()` is false, and a tensor on
a CUDA device is refused.
"""

import itertools
from contextlib import AbstractContextManager

import torch

from syncverify.sim.device.device_functions import Replacement
from syncverify.sim.device.device_modules import (
    Find,
    by_thread,
    installed,
    stream_names,
)


def host_streams(find: Find) -> AbstractContextManager[None]:
    """Return a block in which streams that order nothing are behind torch's names.

    `find` returns the `StreamQueues` of the calling thread; None leaves torch's own.
    """
    memory = (
        (torch.Tensor, name, by_thread(getattr(torch.Tensor, name), virtual, find=find))
        for name, virtual in _MEMORY.items()
    )
    return installed(itertools.chain(stream_names(find), memory))


# Functions about memory that torch offers beside a GPU only.
_MEMORY: dict[str, Replacement] = {
    "pin_memory": lambda _, tensor, *__: tensor.clone(),
    "record_stream": lambda *_: None,
}
