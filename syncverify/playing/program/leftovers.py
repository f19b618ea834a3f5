"""What a subject holds, and leftovers: what is there of it after `unbind()`.

Tensors and handles that a subject holds are found by following its references.
"""

import functools
import gc
import itertools
import sys
import threading
import types
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from syncverify.playing.program.graphs.custom_function import INTO_ONE_STORAGE
from syncverify.playing.program.model import LocalModel
from syncverify.playing.program.own_parameters import OwnParameters, local_part
from syncverify.sim.process_wide.generators import StepDraws
from syncverify.sim.process_wide.settings import (
    ProcessSettings,
    no_collection_of_cycles,
)
from syncverify.trace.run import Held, Leftovers, RankRun
from syncverify.trace.source_files import is_subject_line
from syncverify.trace.source_lines import SourceLine
from syncverify.trace.stacks import line_of

_SUBJECTS = ("syncverify.subjects", "syncverify.synchronizer")
# Statements of a module make them; its name is an attribute of theirs.
_CACHED = type(functools.cache(lambda: None))
_DEFINED = (type, types.FunctionType, _CACHED)
_COUNTED = (torch.Tensor, dist.Work)
# Types whose objects lead to the whole program, to objects of torch, or to their class alone.
_NOT_FOLLOWED = (
    threading.Thread, types.ModuleType, types.FrameType, types.BuiltinFunctionType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType,
    types.WrapperDescriptorType, str, bytes, int, float, type(None), torch.dtype,
    dist.ProcessGroup, DeviceMesh,
)  # fmt: skip


class Before:
    """A rank's parameters and process, as they were before a subject was made."""

    def __init__(self, model: LocalModel, own: OwnParameters) -> None:
        self.model = model
        self.own = own
        self.draws = StepDraws()
        self._hooks = {name: _hooks(p) for name, p in model.parameters.items()}
        self._attributes = {name: {*vars(p)} for name, p in model.parameters.items()}
        self._sharing = self._sharing_storage()
        self._settings = ProcessSettings()

    def leftovers(self) -> Leftovers:
        """Find what a subject left behind, or took away."""
        parameters = self.model.parameters
        added = {name: _hooks(p) - self._hooks[name] for name, p in parameters.items()}
        # Memory of parameters lives on anyhow, so a container of parameters holds nothing.
        tensors = {
            name: tuple(
                attribute
                for attribute, value in vars(parameter).items()
                if attribute not in self._attributes[name]
                and _holds_tensor(value, besides=parameters.values())
            )
            for name, parameter in parameters.items()
        }
        # Losses put some gradients into one storage.
        joined = {
            spec.name
            for spec in self.model.scenario.parameters
            if spec.use == INTO_ONE_STORAGE
        }
        gradients = self.model.local_gradients()
        own = {name: g for name, g in gradients.items() if name not in joined}
        return Leftovers(
            hooks={name: len(hooks) for name, hooks in added.items() if hooks},
            shared_gradients=_sharing_storage(own),
            changed=self.own.changed(),
            lost_hooks=tuple(
                name for name, p in parameters.items() if self._hooks[name] - _hooks(p)
            ),
            attributes={name: found for name, found in tensors.items() if found},
            shared_parameters=tuple(
                name for name in self._sharing_storage() if name not in self._sharing
            ),
            settings=self._settings.changed(),
            thread_settings=self._settings.rank_changed(),
            reseeded=self._settings.reseeded(),
            repeating=self.draws.repeating(),
        )

    def _sharing_storage(self) -> tuple[str, ...]:
        parameters = self.model.parameters.items()
        return _sharing_storage({name: local_part(each) for name, each in parameters})


def _hooks(parameter: nn.Parameter) -> set[tuple[int, int]]:
    # torch has no public way to list hooks. Every tensor keeps them in these dictionaries
    # (torch/_tensor.py, register_post_accumulate_grad_hook).
    registries = (
        parameter._post_accumulate_grad_hooks,  # noqa: SLF001
        parameter._backward_hooks,  # noqa: SLF001
    )
    return {
        (number, key) for number, each in enumerate(registries) for key in each or ()
    }


def calls_of_backward(loss: torch.Tensor) -> tuple[SourceLine, ...]:
    """Run a plain backward and return the first lines of the functions in user files that it called.

    A hook of a node is in no dictionary that Python can read, but it is called.
    """
    called: dict[SourceLine, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and is_subject_line(frame.f_code.co_filename):
            called[line_of(frame.f_code, frame.f_lasti)] = None

    before: Any = sys.getprofile()
    # A finalizer of an earlier subject, which the collector calls, is none of this one's.
    with no_collection_of_cycles():
        sys.setprofile(note)
        try:
            loss.backward()
        finally:
            # A profiler in C, such as cProfile, is no function that can be set again.
            sys.setprofile(before if callable(before) else None)
            if hasattr(before, "enable"):
                before.enable()
    return tuple(called)


def drop_what_is_undone(runs: Iterable[RankRun], before: ProcessSettings) -> None:
    """Drop changes of the process that another rank has undone by now; all ranks have ended.

    Ranks that are threads share some settings: one may look while another one is in a block.
    """
    changed = before.changed()
    for run in runs:
        if (left := run.leftovers) is not None:
            settings = tuple(each for each in left.settings if each in changed)
            run.leftovers = replace(left, settings=settings)


def _sharing_storage(tensors: dict[str, torch.Tensor]) -> tuple[str, ...]:
    sharing: set[str] = set()
    for (one, first), (other, second) in itertools.combinations(tensors.items(), 2):
        same = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        if same and first.numel() and second.numel():
            sharing |= {one, other}
    return tuple(name for name in tensors if name in sharing)


def held_by_subject(synchronizer: object) -> Held:
    """Count the tensors and handles of collectives that a synchronizer refers to.

    They are reached by attributes, containers, class attributes, variables and caches of functions,
    and by the global variables of the modules of the synchronizer's classes. Other globals lead to
    the whole program, and are not followed.
    """
    owners = [synchronizer, *_globals_of(type(synchronizer))]
    return Held(*_count(owners), groups=num_groups())


def _holds_tensor(value: object, *, besides: Iterable[object]) -> bool:
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
            is_followed = not (issubclass(kind, _NOT_FOLLOWED) or _is_ours(kind))
            ends[kind] = not (is_followed or issubclass(kind, _COUNTED))
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
        if not is_subject_line(held.__code__.co_filename):
            return ()
        enclosed, positional = held.__closure__ or (), held.__defaults__ or ()
        by_name = (held.__kwdefaults__ or {}).values()
        return (*enclosed, *positional, *by_name, *vars(held).values())
    if isinstance(held, type):
        # torch's and Python's own classes hold nothing of a subject.
        own = held.__module__.partition(".")[0] not in {"torch", "builtins"}
        return vars(held).values() if own and not _is_ours(held) else ()
    bound = held.maxlen if isinstance(held, deque) else None
    if isinstance(held, _CACHED):
        bound = held.cache_parameters()["maxsize"]
    # With a bound, such as the norms of the last 100 steps.
    return gc.get_referents(held) if bound is None else ()


def _is_ours(kind: type) -> bool:
    """Tell whether a class is the harness's own, and no subject's."""
    module = kind.__module__
    return module.startswith("syncverify.") and not module.startswith(_SUBJECTS)


def num_groups() -> int:
    """Return how many process groups the calling rank has now."""
    # No other module reads this private map. torch has no public way to list groups;
    # `torch.distributed.distributed_c10d.get_pg_count` counts those that were destroyed as well.
    return len(dist.distributed_c10d._world.pg_map)  # noqa: SLF001
