"""The waits of DistributedDataParallel's reducers.

Note [Waits of the reducer]
    The reducer launches the collective of a bucket, or calls the communication hook, when the
    bucket's last gradient is accumulated. It waits for the futures of all buckets after the last
    node: the engine runs `finalize_backward()` as a final callback, on the stream that was current
    at `backward()`. Until then nothing orders a stream after the collective of a bucket.

    C++ code waits where no rank can give its turn away. So a future has its result when the
    reducer gets it, and the rank orders the stream later: in a final callback of its own, which
    the engine calls before that of the reducer. Two cases differ:

    * In the first backward with `static_graph`, the reducer launches all buckets in a final
      callback and waits right after: the order is there at once.
    * With `require_manual_backward_finalization` (torch 2.15), the order is there when
      `finalize_backward()` is called, on the stream that is current then.

    A hook may ask the reducer for its own sum of a bucket (`_run_allreduce_hook`). The hook gets
    the order with the future.

    Not modelled: the reducer copies the result of each bucket after the wait for that bucket. Here
    these copies come after the waits for all buckets.

Source:
    torch/csrc/distributed/c10d/reducer.cpp, `mark_variable_ready`, `finalize_backward` and
    `delay_all_reduce`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from syncverify.sim.device.torch_internals import queue_final_callback, running_node

OrderAfter = Callable[[], None]


class ReducerWaits:
    """The waits of the reducers of one rank, which the trace shows where C++ code waits.

    Attributes:
        finalizes_by_hand: Whether a reducer waits when it is told to, not after the last node.
    """

    def __init__(self) -> None:
        self.finalizes_by_hand = False
        self._pending: list[OrderAfter] = []
        self._for_hook: list[OrderAfter] | None = None

    def order(self, order: OrderAfter) -> None:
        """Order the stream of the reducer after a future, where the reducer waits for it.

        Args:
            order: Orders the current stream after the future.
        """
        if self._for_hook is not None:
            self._for_hook.append(order)
        elif running_node() is None:
            order()
        elif self.finalizes_by_hand:
            self._pending.append(order)
        else:
            queue_final_callback(order)

    @contextmanager
    def asked_by_hook(self) -> Iterator[list[OrderAfter]]:
        """Yield a list of the orders that a hook asks the reducer for, within a block."""
        self._for_hook = []
        try:
            yield self._for_hook
        finally:
            self._for_hook = None

    def finalize(self) -> None:
        """Order the current stream after all futures of a reducer that is told to wait."""
        pending, self._pending = self._pending, []
        for order in pending:
            order()
