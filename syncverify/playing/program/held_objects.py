"""Tensors and handles that a subject holds, found by following its references."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import types
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from syncverify.trace.run import Held
from syncverify.trace.source_files import is_subject_line

_SUBJECTS = (
    "syncverify.subjects",
    "syncverify.synchronizer",
)
# Statements of a module make them; its name is an attribute of theirs.
_CACHED = type(functools.cache(lambda: None))
_DEFINED = (type, types.FunctionType, _CACHED)
_COUNTED = (torch.Tensor, dist.Work)
# Types whose objects lead to the whole program, to objects of torch, or to their class alone.
_NOT_FOLLOWED = (
    threading.Thread,
    types.ModuleType,
    types.FrameType,
    types.BuiltinFunctionType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    str,
    bytes,
    int,
    float,
    type(None),
    torch.dtype,
    dist.ProcessGroup,
    DeviceMesh,
)


def held_by_subject(synchronizer: object) -> Held:
    """Count the tensors and handles of collectives that a synchronizer refers to.

    Returns:
        The numbers of objects that are reached by attributes, containers, class attributes,
        variables and caches of functions, and by the global variables of the modules of the
        synchronizer's classes. Other globals lead to the whole program, and are not followed.
    """
    owners = [synchronizer, *_globals_of(type(synchronizer))]
    return Held(*_count(owners), groups=num_groups())


def holds_tensor(value: object, *, besides: Iterable[object]) -> bool:
    """Tell whether a value is a tensor, or a container of one, that is not among `besides`."""
    if not isinstance(value, (torch.Tensor, Collection)):
        return False  # such as a synchronizer, which frees its memory itself
    return _count([value], besides=besides)[0] > 0


def _count(
    owners: Iterable[object], *, besides: Iterable[object] = ()
) -> tuple[int, int]:
    """Return the number of tensors and handles that are reached, and the bytes of the tensors."""
    number = 0
    storages: dict[int, int] = {}
    seen = {id(each) for each in besides}
    waiting = deque(owners)
    ends: dict[type, bool] = {}  # of this walk alone: it would keep a subject's classes
    while waiting:
        each = waiting.popleft()
        kind = type(each)
        if kind not in ends:
            ends[kind] = _is_end(kind)
        if ends[kind] or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor):
            storages.update(_storage(each))
        if issubclass(kind, _COUNTED):
            number += 1
        else:
            waiting.extend(_references(each))
    return number, sum(storages.values())


def _is_end(kind: type) -> bool:
    """Tell whether objects of a class are not counted, and their references not followed."""
    is_counted = issubclass(kind, _COUNTED)
    return not is_counted and (issubclass(kind, _NOT_FOLLOWED) or _is_ours(kind))


def _storage(tensor: torch.Tensor) -> Mapping[int, int]:
    """Return the address of a tensor's memory with its bytes; views have one memory."""
    with torch.no_grad():
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    # Sparse tensors have several, and some wrappers none, such as a DTensor without a part.
    with suppress(NotImplementedError, RuntimeError, AttributeError):
        storage = local.untyped_storage()
        return {storage.data_ptr(): storage.nbytes()}
    return {}


def _globals_of(kind: type) -> Iterator[object]:
    """Yield global variables of the modules in which a subject's classes are written.

    Only containers, and objects that the module itself makes: a logger leads far away.
    """
    for name in {base.__module__ for base in kind.__mro__ if not _is_ours(base)}:
        module = sys.modules.get(name)
        if not is_subject_line(getattr(module, "__file__", None) or "<none>"):
            continue
        for variable, value in vars(module).items():
            made_by = value if isinstance(value, _DEFINED) else type(value)
            is_own = isinstance(value, Collection) or made_by.__module__ == name
            if is_own and not variable.startswith("__"):
                yield value


def _references(held: object) -> Iterable[object]:
    if isinstance(held, types.FunctionType):
        return _kept_by(held) if is_subject_line(held.__code__.co_filename) else ()
    if isinstance(held, type):
        # torch's and Python's own classes hold nothing of a subject.
        own = held.__module__.partition(".")[0] not in {"torch", "builtins"}
        return vars(held).values() if own and not _is_ours(held) else ()
    if _has_a_bound(held):
        return ()  # such as the norms of the last 100 steps
    return gc.get_referents(held)


def _kept_by(function: types.FunctionType) -> Iterable[object]:
    """Return what a function encloses, its default values, and its attributes."""
    enclosed, positional = function.__closure__ or (), function.__defaults__ or ()
    by_name = (function.__kwdefaults__ or {}).values()
    return (*enclosed, *positional, *by_name, *vars(function).values())


def _has_a_bound(held: object) -> bool:
    if isinstance(held, _CACHED):
        return held.cache_parameters()["maxsize"] is not None
    return isinstance(held, deque) and held.maxlen is not None


def _is_ours(kind: type) -> bool:
    """Tell whether a class is the harness's own, and no subject's."""
    module = kind.__module__
    return module.startswith("syncverify.") and not module.startswith(_SUBJECTS)


def num_groups() -> int:
    """Return how many process groups the calling rank has now."""
    # No other module reads this private map. torch has no public way to list groups;
    # `torch.distributed.distributed_c10d.get_pg_count` counts those that were destroyed as well.
    return len(dist.distributed_c10d._world.pg_map)  # noqa: SLF001
