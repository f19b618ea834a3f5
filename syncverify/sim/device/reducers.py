"""Calls of DistributedDataParallel's reducer that its C++ code answers with nodes and waits.

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

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

from syncverify.holding import holding
from syncverify.sim.device.torch_internals import queue_final_callback, running_node
from syncverify.sim.turns.refusals import refuse

OrderAfter = Callable[[], None]


class ReducerWaits:
    """The waits of the reducers of one rank, which the trace shows where C++ code waits."""

    def __init__(self) -> None:
        # Whether a reducer waits when it is told to, not after the last node.
        self.finalizes_by_hand = False
        self._pending: list[OrderAfter] = []
        self._for_hook: list[OrderAfter] | None = None

    def order(self, order: OrderAfter) -> None:
        """Order the stream of the reducer after a future, where the reducer waits for it.

        `order` orders the current stream after the future.
        """
        if self._for_hook is not None:
            self._for_hook.append(order)
        elif running_node() is None:
            order()
        elif self.finalizes_by_hand:
            self._pending.append(order)
        else:
            queue_final_callback(order)

    def asked_by_hook(self) -> AbstractContextManager[list[OrderAfter]]:
        """Return a block, which gets a list of the orders that a hook asks the reducer for."""
        return holding(self, "_for_hook", [])

    def finalize(self) -> None:
        """Order the current stream after all futures of a reducer that is told to wait."""
        pending, self._pending = self._pending, []
        for order in pending:
            order()


def _make(
    original: Callable[..., None],
    streams: Any,
    reducer: dist.Reducer,
    parameters: Sequence[torch.Tensor],
    *more: Any,
    **options: Any,
) -> None:
    """Make a reducer, which makes and keeps the AccumulateGrad nodes of its parameters."""
    original(reducer, parameters, *more, **options)
    streams.engine.note_leaves(parameters)


def _register_builtin_hook(
    original: Callable[..., None],
    _: Any,
    reducer: dist.Reducer,
    hook: dist.BuiltinCommHookType,
) -> None:
    if hook == dist.BuiltinCommHookType.FP16_COMPRESS:
        refuse("FP16_COMPRESS in C++ (register default_hooks.fp16_compress_hook)")
    original(reducer, hook)


def _require_manual_finalization(
    original: Callable[..., None],
    streams: Any,
    reducer: dist.Reducer,
    required: bool,  # noqa: FBT001  # as torch has it
) -> None:
    original(reducer, required)
    streams.reducers.finalizes_by_hand = required


def _finalize(
    original: Callable[..., None], streams: Any, reducer: dist.Reducer
) -> None:
    streams.reducers.finalize()
    original(reducer)


# Each function replaces one of torch's on the thread of a rank. Its arguments are torch's function,
# the streams of the rank (`RankStreams`), and the arguments of the call.
_FUNCTIONS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (dist.Reducer, "__init__", _make),
    (dist, "_register_builtin_comm_hook", _register_builtin_hook),
    # since torch 2.15
    (dist.Reducer, "_set_manual_finalization_required", _require_manual_finalization),
    (dist.Reducer, "_finalize_backward_manual", _finalize),
)
REDUCER_FUNCTIONS = tuple(each for each in _FUNCTIONS if hasattr(*each[:2]))
