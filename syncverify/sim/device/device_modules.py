"""Virtual streams behind torch's own names, for the length of a run.

Each replaced name checks the calling thread: the thread of a rank gets virtual streams. A
thread that a rank has started is refused where it asks for CUDA, but for calls of data
loaders. Any other thread gets torch's own. Callers look the names up on the modules at each
call, as `torch.cuda.current_stream()` does. A function that was imported by name before the run
(`from torch.cuda import current_stream`) is not replaced, and ends the run with an error.
`torch.cuda.is_available()` stays false, and tensors cannot be made on a CUDA device, unless the
subject sees one: see `seen_names.py`.

Copies to the host
    On CPU tensors, "the host" and "the device" are the same. `Tensor.cpu()`,
    `Tensor.tolist()` and `Tensor.to("cpu")` with a string are taken for copies to the host.
    `Tensor.to(device)` with a `torch.device` is not, as it may be the tensor's own device.
    `copy_` into a tensor on the host is known for one if that tensor is pinned, or is such
    a copy: Note [Memory of the host].
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.scenario.settings import NCCL_NAMES
from syncverify.sim.device import futures, torch_internals
from syncverify.sim.device.device_functions import (
    FUNCTIONS,
    PROFILER_FUNCTIONS,
    STATISTICS,
    CurrentStream,
    Replacement,
    current_stream_context,
    set_device,
    set_device_context,
)
from syncverify.sim.device.engine_streams import node_of
from syncverify.sim.device.host_copies import MEMORY_FUNCTIONS, host_reads
from syncverify.sim.device.nccl_names import known_libraries, libraries_in
from syncverify.sim.device.reducers import REDUCER_FUNCTIONS
from syncverify.sim.device.seen_names import ANSWERED, seen_names
from syncverify.sim.device.streams import RankStreams, own_streams
from syncverify.sim.device.virtual_streams import VirtualEvent, VirtualStream
from syncverify.sim.per_rank.parts import own_value, set_own_value
from syncverify.sim.turns.own_errors import OWN_ERRORS_NOTED
from syncverify.sim.turns.refusals import (
    is_own_thread,
    refusal,
    refuse_missing,
    refuse_thread,
)
from syncverify.trace.stacks import is_subject_above

# Returns the streams of the calling thread's rank; None on any other thread.
Find = Callable[[], Any]


class _ByThread(type):
    """A class whose instances are virtual ones on a rank's thread."""

    original: type
    virtual: type
    make: Replacement
    find: Find

    @override
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        streams = cls.find()
        if streams:
            return cls.make(streams, *args, **kwargs)
        if cls.original.__module__ != torch.cpu.__name__:
            _refuse_own_thread()
        return cls.original(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        """Return an attribute of instances, such as `torch.cuda.Stream.priority_range`."""
        if hasattr(cls.virtual, name):
            return getattr(cls.virtual, name)
        return refuse_missing(name, cls.original)

    @override
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (cls.original, cls.virtual))


def _refuse_own_thread() -> None:
    """Refuse a thread of the subject, for which torch's own function would raise."""
    if is_own_thread():
        refuse_thread("use CUDA")


def _class(original: type, virtual: type, make: Replacement, find: Find) -> type:
    functions = {"make": staticmethod(make), "find": staticmethod(find)}
    parts = {"original": original, "virtual": virtual, **functions}
    return _ByThread(original.__name__, (), parts)


def _new(original: Any, make: Replacement, find: Find) -> Any:
    """Let a class make virtual instances for callers that imported it by name."""

    def virtual(streams: RankStreams, _: type, *args: Any, **kwargs: Any) -> Any:
        return make(streams, *args, **kwargs)

    return staticmethod(by_thread(original, virtual, find=find, is_cuda=True))


def by_thread(
    original: Any,
    virtual: Replacement,
    *,
    find: Find = own_streams,
    for_harness: bool = True,
    is_cuda: bool = False,
    helper: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Return a function that is virtual on the threads of ranks.

    `helper` is called on a thread that a rank has started, such as that of a loader of data.
    """

    def called(*args: Any, **kwargs: Any) -> Any:
        streams = find()
        if streams is None and helper is not None and is_own_thread():
            return helper(*args, **kwargs)
        if streams is None and is_cuda:
            _refuse_own_thread()
        if streams is None or not (for_harness or streams.takes_copies):
            return original(*args, **kwargs)
        with OWN_ERRORS_NOTED, nullcontext() if for_harness else streams.copying():
            return virtual(streams, *args, **kwargs)

    return called


def _create(
    streams: RankStreams, device: Any = None, priority: int = 0, **_: Any
) -> VirtualStream:
    set_device(streams, device)
    return streams.create(device, priority)


def _create_event(
    streams: RankStreams, enable_timing: Any = None, *_: Any, **__: Any
) -> VirtualEvent:
    return VirtualEvent(streams, enable_timing=bool(enable_timing))


def _run_backward(
    original: Any, streams: RankStreams, outputs: Any, gradients: Any, retain: Any,
    create: Any, inputs: Any = (), *more: Any, **options: Any,
) -> Any:  # fmt: skip
    settings = (gradients, retain, create, inputs, *more)
    run = functools.partial(original, outputs, *settings, **options)

    def run_watched() -> Any:
        watch = streams.recorder.engine_watch
        return run() if watch is None else watch.run(run, [*map(node_of, outputs)])

    return streams.engine.run_backward(run_watched, outputs, gradients, inputs)


# A replay queues work without Python, so no operator of it would be recorded.
_REFUSE_GRAPHS = refusal("CUDA graphs")
# Classes, the classes of their virtual instances (None: torch's own), and the makers.
_CLASSES: tuple[tuple[Any, str, type | None, Replacement], ...] = (
    (torch.cuda, "CUDAGraph", None, _REFUSE_GRAPHS),
    (torch.cuda, "graph", None, _REFUSE_GRAPHS),
    (torch.accelerator, "Graph", None, refusal("graphs of accelerators")),
    (torch.cuda, "ExternalStream", None, refusal("streams that others have made")),
    (torch.cuda, "MemPool", None, refusal("pools of memory")),
    (torch.cuda, "device", None, set_device_context),
    (torch.cuda, "device_of", None, lambda *_: nullcontext()),
    (torch.accelerator, "device_index", None, set_device_context),
    (torch, "Stream", VirtualStream, _create),
    # Its first argument is a device, not a flag.
    (
        torch,
        "Event",
        VirtualEvent,
        lambda s, _=None, **given: _create_event(s, **given),
    ),
    (torch.cuda, "Stream", VirtualStream, _create),
    (torch.cuda, "Event", VirtualEvent, _create_event),
    # It takes no device.
    (
        torch.cpu,
        "Stream",
        VirtualStream,
        lambda s, priority=-1: s.create(None, priority),
    ),
    (torch.cpu, "Event", VirtualEvent, _create_event),
    (torch.cuda, "StreamContext", CurrentStream, current_stream_context),
    (torch.cpu, "StreamContext", CurrentStream, current_stream_context),
)
# Classes that callers may have imported by name, and the makers of virtual instances.
_IMPORTED: tuple[tuple[Any, Replacement], ...] = (
    (torch.cuda.Stream, _create),
    (torch.cuda.Event, _create_event),
    (torch.cuda.CUDAGraph, _REFUSE_GRAPHS),
)


def _new_group(
    original: Any, streams: RankStreams, ranks: Any = None, timeout: Any = None,
    backend: Any = None, backend_options: Any = None, pg_tag: Any = None,
    use_local_synchronization: Any = None, **options: Any,
) -> Any:  # fmt: skip
    """Return a new group of the machine, whichever library is to move the data.

    Without `use_local_synchronization`, torch has every rank call, members or not: it names a
    group by the number of the rank's call.
    """
    asked = backend
    if known_libraries().issuperset(libraries_in(str(backend).lower())):
        backend = backend_options = None  # those of the default group
    given = ranks, timeout, backend, backend_options, pg_tag, use_local_synchronization
    group = original(*given, **options)
    if not use_local_synchronization:
        members = range(dist.get_world_size()) if ranks is None else ranks
        is_sorted = options.get("sort_ranks", True)
        streams.note_group(sorted(members) if is_sorted else members)
    streams.backends.note(group, asked)
    return group


def _from_local(
    original: Any, streams: RankStreams, local_tensor: Any, *args: Any, shape: Any = None,
    **options: Any,
) -> Any:  # fmt: skip
    """Return a DTensor, which takes all shards for equal unless it gets the shape of the whole."""
    made = original(local_tensor, *args, shape=shape, **options)
    for axis, placement in enumerate(made.placements if shape is None else ()):
        if placement.is_shard():
            group = made.device_mesh.get_group(axis)
            streams.note_shard(local_tensor, dist.get_process_group_ranks(group))
    return made


def _get_backend(original: Any, streams: RankStreams, group: Any = None) -> Any:
    """Name the backend to a line of the subject as real ranks would."""
    name = original(group)  # refuses ranks outside of the group
    if not is_subject_above(3):
        return name
    return streams.backends.of(getattr(group, "group_name", ""))


def _split_group(
    original: Any, streams: RankStreams, parent_pg: Any = None, split_ranks: Any = None,
    timeout: Any = None, *more: Any, **options: Any,
) -> Any:  # fmt: skip
    """Split a group as NCCL does: all ranks of the parent call, and wait for each other."""
    name = getattr(parent_pg, "group_name", "")
    if streams.backends.of(name) not in NCCL_NAMES or not split_ranks:
        return original(parent_pg, split_ranks, timeout, *more, **options)
    parent: Any = parent_pg or dist.group.WORLD
    streams.num_splits[name] += 1
    key = f"split {streams.num_splits[name]} of group {name}"
    store = torch_internals.default_store()
    if store.add(key, 1) == parent.size():
        store.set(f"{key}: all ranks", "")
    store.wait([f"{key}: all ranks"])
    own = next((ranks for ranks in split_ranks if parent.rank() in ranks), None)
    if own is None:
        return None
    ranks = [dist.get_global_rank(parent, each) for each in sorted(own)]
    return dist.new_group(ranks, timeout=timeout, use_local_synchronization=True)


def _script(original: Any, _: RankStreams, *args: Any, **kwargs: Any) -> Any:
    """Compile a function as TorchScript, which knows torch's own functions alone."""
    # TorchScript looks names up in the frame of its caller: above this call and `called`.
    kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 2
    with ExitStack() as stack:
        for places in reversed(_PLACES):
            stack.enter_context(_put_back(places))
        return original(*args, **kwargs)


# Owners, names, and functions that get torch's own before the streams of the rank.
_AROUND_TORCH: tuple[tuple[Any, str, Replacement], ...] = (
    (*torch_internals.COLLECT_ALL, futures.collect_all),
    (torch.futures.Future, "__new__", futures.new_future),
    *REDUCER_FUNCTIONS,
    (*torch_internals.REGISTER_COMM_HOOK, futures.register_comm_hook),
    (*torch_internals.RUN_ALLREDUCE_HOOK, futures.run_allreduce_hook),
    (*torch_internals.NEW_GROUP, _new_group),
    (DTensor, "from_local", _from_local),
    *(
        (owner, name, function)
        for owner in (dist, dist.distributed_c10d)
        for name, function in (
            ("split_group", _split_group),
            ("get_backend", _get_backend),
            # torch asks for the name of the backend first, and raises an error that reads like
            # the subject's.
            ("monitored_barrier", refusal("monitored_barrier")),
        )
    ),
    *(
        (*place, refusal("symmetric memory"))
        for place in torch_internals.SYMMETRIC_MEMORY
    ),
    *((rpc, name, refusal("rpc")) for name in ("init_rpc",) if rpc.is_available()),
    *PROFILER_FUNCTIONS,
    (torch.jit, "script", _script),
    # All ways to run backward call it.
    (torch.autograd, "_engine_run_backward", _run_backward),
)


_STATIC = frozenset({"__new__", "from_local"})  # methods that get no object

# Functions of torch that ask others of its module, and no device: torch's own.
_AS_TORCH = (
    *("get_gencode_flags", "host_memory_stats", "is_tf32_supported"),
    *("max_memory_allocated", "max_memory_cached", "max_memory_reserved"),
    *("memory_allocated", "memory_cached", "memory_reserved", "memory_stats"),
    *("memory_summary", "reset_max_memory_allocated", "reset_max_memory_cached"),
    *("CudaError", "DeferredCudaCallError", "cudaStatus"),
)


def _numbers_and_refusals() -> Iterator[tuple[Any, str, Replacement]]:
    """Yield the functions that answer with a number, and those that have no answer."""
    for device, numbers in STATISTICS.items():
        for module in (device, device.memory):
            for name, virtual in numbers.items():
                if hasattr(module, name):
                    yield module, name, virtual
    for module in STATISTICS:
        known = {*FUNCTIONS[module], *STATISTICS[module], *ANSWERED[module], *_AS_TORCH}
        known |= {name for owner, name, *_ in _CLASSES if owner is module}
        for name in sorted(set(module.__all__) - known):
            # Some classes stand for a dtype: `torch.cuda.FloatTensor`.
            stands_for_dtype = name.endswith(("Tensor", "Storage"))
            if callable(getattr(module, name)) and not stands_for_dtype:
                yield module, name, refusal(f"{module.__name__}.{name}")


# Functions for threads of data loaders, which choose a device and pin memory. Such a thread acts
# beside the rank, and is not recorded.
_HELPERS: dict[str, Replacement] = {
    "set_device": lambda *_: None,
    "set_device_index": lambda *_: None,
    "is_pinned": lambda *_, **__: False,
    "pin_memory": lambda tensor, *_, **__: tensor.clone(),
}


def _unless_seen(find: Find) -> Find:
    """Leave a rank that sees another device torch's own streams of the CPU, which order nothing."""
    return lambda: own if (own := find()) is not None and own.seen is None else None


def stream_names(find: Find) -> Iterator[tuple[Any, str, Any]]:
    """Yield the owner and name of each attribute about streams, and the replacement."""
    for module, functions in FUNCTIONS.items():
        find_here = _unless_seen(find) if module is torch.cpu else find
        for name, virtual in functions.items():
            made = by_thread(
                getattr(module, name),
                virtual,
                find=find_here,
                is_cuda=module in (torch.cuda, torch.accelerator),
                helper=_HELPERS.get(name),
            )
            yield module, name, made
    for module, name, virtual in _numbers_and_refusals():
        original = getattr(module, name)
        if isinstance(original, type):
            yield module, name, _class(original, original, virtual, find)
        else:
            # The answer depends on no rank, so threads of the subject hear it, too.
            answer = functools.partial(virtual, None)
            yield module, name, by_thread(original, virtual, find=find, helper=answer)
    for imported, make in _IMPORTED:
        yield imported, "__new__", _new(imported.__new__, make, find)
    for owner, name, virtual_class, make in _CLASSES:
        original = getattr(owner, name)
        find_here = _unless_seen(find) if owner is torch.cpu else find
        yield owner, name, _class(original, virtual_class or original, make, find_here)


# Functions about memory that torch offers beside a GPU only, where work runs at once.
_HOST_MEMORY: dict[str, Replacement] = {
    "pin_memory": lambda _, tensor, *__: tensor.clone(),
    "record_stream": lambda *_: None,
}


def host_streams(find: Find) -> AbstractContextManager[None]:
    """Return a block in which streams that order nothing are behind torch's names.

    They are for real processes on the CPU, and for `fake`: every operator has run when the next
    line runs, so all orders hold already, and no order is judged. `find` returns the
    `StreamQueues` of the calling thread; None leaves torch's own.
    """
    memory = (
        (torch.Tensor, name, by_thread(getattr(torch.Tensor, name), virtual, find=find))
        for name, virtual in _HOST_MEMORY.items()
    )
    return installed(itertools.chain(stream_names(find), memory))


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    yield from stream_names(own_streams)
    yield from host_reads()
    for functions, for_harness in ((MEMORY_FUNCTIONS, False), (_AROUND_TORCH, True)):
        for owner, name, virtual in functions:
            original = getattr(owner, name)
            made = by_thread(
                original,
                functools.partial(virtual, original),
                for_harness=for_harness,
                helper=_HELPERS.get(name),
            )
            yield owner, name, staticmethod(made) if name in _STATIC else made


def virtual_device_modules(
    *, shows_device: bool = False
) -> AbstractContextManager[None]:
    """Put virtual streams, and a device if it shows one, behind torch's names for a block."""
    kept = _kept_replacements()
    return installed(itertools.chain(kept, seen_names() if shows_device else ()))


# The replacements of the last run, each with the value in its place before that run.
_KEPT: list[tuple[tuple[Any, str, Any], Any]] = []


def _kept_replacements() -> list[tuple[Any, str, Any]]:
    """Return the replacements; they are made again if a name has another value by now."""
    if not _KEPT or any(own_value(*each[:2]) is not before for each, before in _KEPT):
        _KEPT[:] = [(each, own_value(*each[:2])) for each in _replacements()]
    return [each for each, _ in _KEPT]


# The places of replacements: owner, name, and the original value.
_PLACES: list[list[tuple[Any, str, Any]]] = []


@contextmanager
def _put_back(places: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Put the original values in the place of the replacements, for a block."""
    replacements = [(owner, name, vars(owner)[name]) for owner, name, _ in places]
    for place in reversed(places):
        set_own_value(*place)
    try:
        yield
    finally:
        for owner, name, replacement in replacements:
            setattr(owner, name, replacement)


@contextmanager
def installed(replacements: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Put replacements, each an owner, a name and a value, in place for a block."""
    before: list[tuple[Any, str, Any]] = []
    _PLACES.append(before)
    try:
        # Each is made when the one before is in its place: `seen_names` replaces some again.
        for owner, name, replacement in replacements:
            before.append((owner, name, own_value(owner, name)))
            setattr(owner, name, replacement)
        yield
    finally:
        _PLACES.remove(before)
        for place in reversed(before):
            set_own_value(*place)
