"""A reduction that is left to the user: what a comm hook gets, and has to return.

Note [Streams of a comm hook]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The hook runs while the side stream is current, after everything that was accumulated.
So kernels that it queues read whole gradients, and overlap with the rest of backward.
`wait()` waits for the future, again on the side stream: one that comes from a collective
or knows its devices orders the side stream after its value and blocks no host. Then the
value is copied into the buffer on the side stream, where it is not the buffer itself.

A temporary that the hook allocates belongs to the side stream's pool. The future keeps
it alive until it was copied, and whoever gets the memory next from that pool is ordered
after the copy. A hook that works on streams of its own has to order them itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True, eq=False)
class HookBucket:
    """A bucket that is full, as a comm hook sees it.

    Attributes:
        buffer: Shape (N,): this rank's gradients and zeros between them. May be
            overwritten; nobody else touches it until the future was waited for.
        views: The parts of the buffer that hold gradients, in the buffer's order, each
            in its local gradient's shape.
        names: Of their parameters.
        group: The ranks to sum over.
        index: Position in launch order, among all buckets of this rank.
        is_last: Whether it is the last that this rank launches in the step.
        state: Tensors that the hook keeps for this bucket from step to step; empty after
            `bind()`, gone after `unbind()` and `reset()`.
    """

    buffer: torch.Tensor
    views: tuple[torch.Tensor, ...]
    names: tuple[str, ...]
    group: dist.ProcessGroup
    index: int
    is_last: bool
    state: dict[str, torch.Tensor]


CommHook = Callable[[HookBucket], torch.futures.Future[torch.Tensor]]
