"""Tensors and handles that a subject holds, found by following its references."""

from __future__ import annotations

import gc
import threading
import types
from collections import deque
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from syncverify.trace.source_lines import is_subject_line

_ADAPTERS = ("syncverify.subjects", "syncverify.adapters", "syncverify.bugbank")
# Reached through them is the whole program, or what belongs to torch.
_NOT_FOLLOWED = (
    threading.Thread,
    types.ModuleType,
    types.FrameType,
    types.BuiltinFunctionType,
    str,
    bytes,
    torch.Tensor,
    torch.dtype,
    dist.Work,
    dist.ProcessGroup,
    DeviceMesh,
)


def count_held(owner: object) -> int:
    """Count the tensors and handles of collectives that an object and its class refer to.

    Returns:
        Their number, found by attributes, containers, class attributes and what functions
        enclose; not by the globals of functions, for those lead to the whole program.
    """
    number = 0
    seen: set[int] = set()
    waiting: deque[object] = deque([owner])
    while waiting:
        each = waiting.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        number += isinstance(each, (torch.Tensor, dist.Work))
        waiting.extend(_references(each))
    return number


def _references(held: object) -> Iterable[object]:
    if isinstance(held, types.FunctionType):
        own = is_subject_line(held.__code__.co_filename)
        return (*(held.__closure__ or ()), *(held.__defaults__ or ())) if own else ()
    if isinstance(held, type):
        # torch's and Python's own classes hold nothing of a subject.
        own = held.__module__.partition(".")[0] not in {"torch", "builtins"}
        return vars(held).values() if own and not _is_ours(held) else ()
    if isinstance(held, _NOT_FOLLOWED) or _is_ours(type(held)):
        return ()
    if isinstance(held, deque) and held.maxlen is not None:
        return ()  # such as the norms of the last 100 steps
    return gc.get_referents(held)


def _is_ours(kind: type) -> bool:
    """Tell whether a class is the harness's own, and no adapter."""
    module = kind.__module__
    return module.startswith("syncverify.") and not module.startswith(_ADAPTERS)
