"""Calls of DistributedDataParallel's reducer that its C++ code answers with nodes and waits.

Each function here replaces one of torch's on the thread of a rank. Its arguments are torch's
function, the rank's streams, and the arguments of the call. See Note [Waits of the reducer].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from syncverify.sim.device.streams import RankStreams
from syncverify.sim.turns.refusals import refuse


def _make(
    original: Callable[..., None],
    streams: RankStreams,
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
    _: RankStreams,
    reducer: dist.Reducer,
    hook: dist.BuiltinCommHookType,
) -> None:
    if hook == dist.BuiltinCommHookType.FP16_COMPRESS:
        refuse("FP16_COMPRESS in C++ (register default_hooks.fp16_compress_hook)")
    original(reducer, hook)


def _require_manual_finalization(
    original: Callable[..., None],
    streams: RankStreams,
    reducer: dist.Reducer,
    required: bool,  # noqa: FBT001  # as torch has it
) -> None:
    original(reducer, required)
    streams.reducers.finalizes_by_hand = required


def _finalize(
    original: Callable[..., None], streams: RankStreams, reducer: dist.Reducer
) -> None:
    streams.reducers.finalize()
    original(reducer)


_FUNCTIONS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (dist.Reducer, "__init__", _make),
    (dist, "_register_builtin_comm_hook", _register_builtin_hook),
    # since torch 2.15
    (dist.Reducer, "_set_manual_finalization_required", _require_manual_finalization),
    (dist.Reducer, "_finalize_backward_manual", _finalize),
)
REDUCER_FUNCTIONS = tuple(each for each in _FUNCTIONS if hasattr(*each[:2]))
