"""The functions of torch's device modules, as they behave on the thread of a rank.

A rank has one device and its streams. The device has number 0, unless `seen_names.py` shows
the subject another one. A function that needs more of a device ends the run with an error.

No number is measured, and none changes during a run: real ones depend on the allocator and on
kernels, which are not simulated. The memory in use is not 0, as a program may divide by it.

torch's profiler starts and ends, and records nothing. That of a process follows one thread: ranks
that are threads would share it, and its C++ code would end the process. A real profiler also waits
for the GPU when it ends. A program has to be right without it, so this one does not.

Source:
    The names of the memory's numbers: `THCPModule_memoryStats` in torch/csrc/cuda/Module.cpp,
    `torch.cuda.host_memory_stats`. `torch.autograd.profiler.profile` calls the names of the
    profiler, for `torch.profiler.profile` as well.
"""

import json
import types
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import torch
from typing_extensions import override

from syncverify.sim.device.streams import RankStreams
from syncverify.sim.device.virtual_streams import VirtualStream, own_stream
from syncverify.sim.turns.refusals import refusal, refuse

Replacement = Callable[..., Any]


def current_stream_context(
    _: RankStreams, stream: VirtualStream | None
) -> AbstractContextManager[Any]:
    """Return a context in which a stream is current; None changes nothing."""
    return nullcontext() if stream is None else CurrentStream(stream)


class CurrentStream(AbstractContextManager[None]):
    """The context of `torch.cuda.stream()`: yields None, and may be used again."""

    def __init__(self, stream: VirtualStream) -> None:
        self.stream = own_stream(stream)

    @override
    def __enter__(self) -> None:
        self.stream.__enter__()

    @override
    def __exit__(self, *_: object) -> None:
        self.stream.__exit__()


def set_device(streams: RankStreams, device: Any) -> None:
    """Change nothing: a rank has one device. It may name any that the machine has."""
    if streams.seen is not None and device is not None:
        number = device if isinstance(device, int) else torch.device(device).index
        streams.seen.check_number(number)


def set_device_context(
    streams: RankStreams, device: Any
) -> AbstractContextManager[Any]:
    """Return the context of `torch.cuda.device()`, in which nothing changes."""
    set_device(streams, device)
    return nullcontext()


def _answers(value: object) -> Replacement:
    return lambda *_, **__: value


# There is one device, and no time to spend or to measure.
_NOTHING: Final = _answers(None)
_STREAMS: dict[str, Replacement] = {
    "current_stream": lambda streams, device=None: streams.current(),  # torch's names
    "default_stream": lambda streams, device=None: streams.default,
    "set_stream": lambda own, stream: stream and own.set_current(own_stream(stream)),
    "stream": current_stream_context,
    "synchronize": lambda streams, device=None: streams.synchronize(),
}


def _some(*names: str) -> dict[str, Replacement]:
    return {name: _STREAMS[name] for name in names}


# By module: functions that depend on the rank.
FUNCTIONS: Final[dict[Any, dict[str, Replacement]]] = {
    torch.cuda: {
        **_STREAMS,
        # torch calls it before any use of a real device, such as a tensor or a handle.
        "_lazy_init": refusal(
            "CUDA devices (make tensors on the device of the parameters, and look names of "
            "torch.cuda up when they are needed)"
        ),
        "graph_pool_handle": refusal("CUDA graphs"),
        "make_graphed_callables": refusal("CUDA graphs"),
        "_sleep": _NOTHING,  # every order is judged anyway
        "current_device": lambda _: 0,
        "is_current_stream_capturing": lambda _: False,
        "set_device": set_device,
    },
    torch.cuda.nvtx: dict.fromkeys(
        ("mark", "range_end", "range_pop", "range_push", "range_start"), _NOTHING
    ),
    torch.cuda.profiler: dict.fromkeys(("start", "stop"), _NOTHING),
    torch.cpu: _some("current_stream", "stream", "synchronize"),
    torch.accelerator: {
        **_some("current_stream", "set_stream", "synchronize"),
        "current_device_idx": lambda _: 0,  # the former name
        "current_device_index": lambda _: 0,
        "set_device_idx": set_device,
        "set_device_index": set_device,
    },
}


_GIB: Final = 2**30
TOTAL_BYTES: Final = 80 * _GIB
_RESERVED_BYTES: Final = 2 * _GIB
_ALLOCATED_BYTES: Final = _GIB
_FREE_BYTES: Final = TOTAL_BYTES - _RESERVED_BYTES
_POOLS: Final = ("all", "large_pool", "small_pool")


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """The properties of the simulated GPU, by torch's names and units: a large one of today."""

    name: str = "simulated GPU"
    major: int = 9
    minor: int = 0
    total_memory: int = TOTAL_BYTES
    multi_processor_count: int = 132
    warp_size: int = 32
    is_integrated: bool = False
    is_multi_gpu_board: bool = False
    L2_cache_size: int = 50 * 2**20
    max_threads_per_block: int = 1_024
    max_threads_per_multi_processor: int = 2_048
    regs_per_multiprocessor: int = 65_536
    shared_memory_per_block: int = 48 * 2**10
    shared_memory_per_block_optin: int = 227 * 2**10
    shared_memory_per_multiprocessor: int = 228 * 2**10

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse any other property: releases of torch differ in them."""
        if name.startswith("__"):  # Python asks for such names, as to copy an object
            raise AttributeError(name)
        refuse(f"get_device_properties().{name}")


GPU: Final = DeviceProperties()


def _metric(value: int) -> dict[str, int]:
    return {"current": value, "peak": value, "allocated": value, "freed": 0}


def _by_pool(value: int) -> dict[str, dict[str, int]]:
    """Return a number of the allocator of the device; all of it is in the large pool."""
    return {pool: _metric(0 if pool == "small_pool" else value) for pool in _POOLS}


def _device_memory() -> dict[str, Any]:
    """Return the numbers of the allocator of the device."""
    blocks = ("allocation", "segment", "active")
    allocated = ("allocated_bytes", "active_bytes", "requested_bytes")
    counters = (
        "num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_free",
        "num_oom_rejections",
    )  # fmt: skip
    return {
        **{name: _by_pool(1) for name in blocks},
        **{name: _by_pool(_ALLOCATED_BYTES) for name in allocated},
        "reserved_bytes": _by_pool(_RESERVED_BYTES),
        **{name: _by_pool(0) for name in ("inactive_split", "inactive_split_bytes")},
        **{name: _metric(0) for name in ("oversize_allocations", "oversize_segments")},
        **dict.fromkeys(counters, 0),
        "num_device_alloc": 1,
        "max_split_size": -1,
    }


def _host_memory() -> dict[str, Any]:
    """Return the numbers of the allocator of pinned memory, which no block is in."""
    metrics = (
        "allocations", "allocated_bytes", "active_requests", "active_bytes", "segment",
        "reserved_bytes",
    )  # fmt: skip
    times = dict.fromkeys(("total", "max", "min", "count", "avg"), 0)
    return {
        **{name: _metric(0) for name in metrics},
        "num_host_alloc": 0,
        "num_host_free": 0,
        "host_alloc_time": times,
        "host_free_time": times,
    }


_OF_BOTH = "empty_cache", "reset_accumulated_memory_stats", "reset_peak_memory_stats"
_OF_NO_EFFECT = (
    *("ipc_collect", "set_per_process_memory_fraction", *_OF_BOTH),
    *("reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats"),
)
# By module: functions that answer alike on every thread. Torch's own derive other numbers from these.
STATISTICS: Final[dict[Any, dict[str, Replacement]]] = {
    torch.cuda: {
        "clock_rate": _answers(1_980),  # MHz
        "device_memory_used": _answers(_RESERVED_BYTES),
        "get_allocator_backend": _answers("native"),
        "get_arch_list": lambda *_: ["sm_90"],
        "get_per_process_memory_fraction": _answers(1.0),
        "get_sync_debug_mode": _answers(0),
        "host_memory_stats_as_nested_dict": lambda *_: _host_memory(),
        "list_gpu_processes": _answers("GPU:0\nno processes are running"),
        "mem_get_info": _answers((_FREE_BYTES, TOTAL_BYTES)),
        "memory_snapshot": lambda *_, **__: [],
        "memory_stats_as_nested_dict": lambda *_, **__: _device_memory(),
        "memory_usage": _answers(10),  # percent of time
        "power_draw": _answers(300_000),  # mW
        "temperature": _answers(40),  # degrees Celsius
        "utilization": _answers(50),  # percent of time
        **dict.fromkeys(_OF_NO_EFFECT, _NOTHING),
        # Private, but torch's guides call them.
        "_record_memory_history": _NOTHING,
        "_snapshot": lambda *_, **__: {"segments": [], "device_traces": [[]]},
    },
    torch.accelerator: {
        "get_memory_info": _answers((_FREE_BYTES, TOTAL_BYTES)),
        "memory_stats": lambda *_: torch.cuda.memory_stats(),
        **dict.fromkeys(("empty_host_cache", *_OF_BOTH), _NOTHING),
    },
}


_NO_EVENT: Final = json.dumps({"schemaVersion": 1, "traceEvents": []})
# The result of a profiler that recorded nothing, by torch's names: no event, and a start at 0 ns.
_NOTHING_PROFILED: Final = types.SimpleNamespace(
    events=list,
    experimental_event_tree=list,
    trace_activities=list,
    trace_start_ns=int,
    save=lambda path: Path(path).write_text(_NO_EVENT, encoding="utf-8"),
)


def _make_profiler(
    original: Any, _: RankStreams, profiler: Any, *args: Any, **options: Any
) -> None:
    original(profiler, *args, **options)
    profiler.use_device = None  # it would wait for the device


# As elsewhere where torch's own function matters, each gets that function first.
PROFILER_FUNCTIONS: Final[tuple[tuple[Any, str, Replacement], ...]] = (
    (torch.autograd.profiler, "_prepare_profiler", _NOTHING),
    (torch.autograd.profiler, "_enable_profiler", _NOTHING),
    (torch.autograd.profiler, "_toggle_collection_dynamic", _NOTHING),
    (torch.autograd.profiler, "_disable_profiler", _answers(_NOTHING_PROFILED)),
    (torch.autograd, "_add_metadata_json", _NOTHING),
    (torch.autograd.profiler.profile, "__init__", _make_profiler),
)
