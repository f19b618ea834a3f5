"""The interface of a comm hook: its argument and its result.

A comm hook is a function of the user that reduces a bucket in place of an all-reduce.

Note [Streams of a comm hook]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The hook runs while the side stream is current, after all accumulations. Kernels that
the hook queues read complete gradients and overlap with the rest of backward. `wait()`
waits for the future on the side stream. A future that comes from a collective, or that
knows its devices, orders the side stream after its value and blocks no host. Then the
side stream copies the value into the buffer, unless the value is the buffer itself.

A temporary tensor of the hook belongs to the pool of the side stream. The future keeps
the tensor alive until the copy is queued. The next user of that memory is on the same
stream, so it is ordered after the copy. A hook with additional streams has to order
those streams itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True, eq=False)
class HookBucket:
    """A complete bucket, as a comm hook sees it.

    Attributes:
        buffer: Shape (N,): gradients of this rank, with zeros between them, and nothing
            else. The hook may overwrite the buffer, also between the gradients. No other
            code uses it before the future was waited for.
        views: Parts of the buffer that hold gradients, in the order of the buffer. Each
            view has the shape of its local gradient.
        names: Names of the parameters, one for each view.
        group: Process group of the ranks to sum over.
        index: Position in launch order, among all buckets of this rank.
        is_last: Whether the bucket is the last that this rank launches in the step.
        state: Tensors that the hook keeps for this bucket from step to step. Empty
            after `bind()`, gone after `unbind()` and `reset()`. Those of shape (N,) move
            with their gradients where buckets are cut anew, and are in `state_dict()`.
    """

    buffer: torch.Tensor
    views: tuple[torch.Tensor, ...]
    names: tuple[str, ...]
    group: dist.ProcessGroup
    index: int
    is_last: bool
    state: dict[str, torch.Tensor]


CommHook = Callable[[HookBucket], torch.futures.Future[torch.Tensor]]
