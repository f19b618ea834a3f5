"""What `torch.cuda` and `torch.accelerator` tell of the simulated GPU: its memory and its state.

No number is measured, and none changes during a run: real ones depend on the allocator and on
kernels, which are not simulated. The memory in use is not 0, as a program may divide by it.

Source:
    The names of the memory's numbers: `THCPModule_memoryStats` in torch/csrc/cuda/Module.cpp,
    `torch.cuda.host_memory_stats`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NoReturn

import torch

from syncverify.sim.device.device_functions import Replacement
from syncverify.sim.turns.refusals import refuse

_GIB: Final = 2**30
TOTAL_BYTES: Final = 80 * _GIB
_RESERVED_BYTES: Final = 2 * _GIB
_ALLOCATED_BYTES: Final = _GIB
_FREE_BYTES: Final = TOTAL_BYTES - _RESERVED_BYTES
_POOLS: Final = ("all", "large_pool", "small_pool")


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """The properties of the simulated GPU, by torch's names: those of a large one of today.

    Attributes:
        name: Name of the model.
        major: First number of its compute capability.
        minor: Second number of that.
        total_memory: Size of its memory, in bytes.
        multi_processor_count: Number of its multiprocessors.
        warp_size: Threads of a warp.
        is_integrated: Whether it shares the memory of the host.
        is_multi_gpu_board: Whether its board holds several GPUs.
        L2_cache_size: Size of its cache, in bytes.
        max_threads_per_block: Threads of a block, at most.
        max_threads_per_multi_processor: Threads of a multiprocessor, at most.
        regs_per_multiprocessor: Registers of a multiprocessor, of 32 bits each.
        shared_memory_per_block: Shared memory of a block, in bytes.
        shared_memory_per_block_optin: The same for a kernel that asks for more, in bytes.
        shared_memory_per_multiprocessor: Shared memory of a multiprocessor, in bytes.
    """

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


def _answers(value: object) -> Replacement:
    return lambda *_, **__: value


_NOTHING: Final = _answers(None)
# Functions of `torch.cuda`. Torch's own functions derive other numbers from these.
CUDA_STATISTICS: Final[dict[str, Replacement]] = {
    "clock_rate": _answers(1_980),  # MHz
    "device_memory_used": _answers(_RESERVED_BYTES),
    "empty_cache": _NOTHING,
    "get_allocator_backend": _answers("native"),
    "get_arch_list": lambda *_: ["sm_90"],
    "get_per_process_memory_fraction": _answers(1.0),
    "get_sync_debug_mode": _answers(0),
    "host_memory_stats_as_nested_dict": lambda *_: _host_memory(),
    "ipc_collect": _NOTHING,
    "list_gpu_processes": _answers("GPU:0\nno processes are running"),
    "mem_get_info": _answers((_FREE_BYTES, TOTAL_BYTES)),
    "memory_snapshot": lambda *_, **__: [],
    "memory_stats_as_nested_dict": lambda *_, **__: _device_memory(),
    "memory_usage": _answers(10),  # percent of time
    "power_draw": _answers(300_000),  # mW
    "reset_accumulated_host_memory_stats": _NOTHING,
    "reset_accumulated_memory_stats": _NOTHING,
    "reset_peak_host_memory_stats": _NOTHING,
    "reset_peak_memory_stats": _NOTHING,
    "set_per_process_memory_fraction": _NOTHING,
    "temperature": _answers(40),  # degrees Celsius
    "utilization": _answers(50),  # percent of time
    # Private, but torch's guides call them.
    "_record_memory_history": _NOTHING,
    "_snapshot": lambda *_, **__: {"segments": [], "device_traces": [[]]},
}
ACCELERATOR_STATISTICS: Final[dict[str, Replacement]] = {
    "empty_cache": _NOTHING,
    "empty_host_cache": _NOTHING,
    "get_memory_info": _answers((_FREE_BYTES, TOTAL_BYTES)),
    "memory_stats": lambda *_: torch.cuda.memory_stats(),
    "reset_accumulated_memory_stats": _NOTHING,
    "reset_peak_memory_stats": _NOTHING,
}
