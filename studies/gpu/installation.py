"""The machine: device, versions, and whether two streams work at the same time."""

import subprocess
from typing import Any

import torch
import torch.distributed as dist

from studies.gpu.part import Part, Result

_SLEEP_CYCLES = 50_000_000


def versions() -> dict[str, str]:
    """Return device and versions by topic; a topic without a GPU says so."""
    has_gpu = torch.cuda.is_available()
    has_nccl = has_gpu and dist.is_nccl_available()
    nccl: Any = torch.cuda.nccl.version() if has_nccl else ()
    return {
        "device": torch.cuda.get_device_name(0) if has_gpu else "none",
        "driver": _driver() if has_gpu else "none",
        "CUDA of torch": str(torch.version.cuda or "none"),
        "torch": torch.__version__,
        "NCCL": ".".join(map(str, nccl)) or "none",
    }


def run(device: torch.device) -> Result:
    """Tell whether torch finds all that the other parts need."""
    if device.type != "cuda":
        return Result("not run", "cpu", "torch finds no GPU, so no streams to compare")
    wrong = [] if dist.is_nccl_available() else ["torch was built without NCCL"]
    _milliseconds(2)  # loads the kernel
    alone_ms, together_ms = _milliseconds(1), _milliseconds(2)
    ratio = together_ms / alone_ms
    if ratio > 1.5:
        wrong.append(f"two streams take {ratio:.2f} times the time of one")
    return Result.of(
        wrong, device, f"two streams together take {ratio:.2f} times the time of one"
    )


def _milliseconds(num_streams: int) -> float:
    """Return the time that streams take which each sleep once."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for stream in [torch.cuda.Stream() for _ in range(num_streams)]:
        stream.wait_event(start)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(_SLEEP_CYCLES)  # noqa: SLF001  # torch has no other one
        torch.cuda.current_stream().wait_stream(stream)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        process = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown: nvidia-smi does not answer"
    return process.stdout.partition("\n")[0]


PART = Part(
    "installation",
    "Device and versions",
    "Does torch find a GPU and NCCL, and do two streams overlap (events around "
    "`torch.cuda._sleep`)?",
    run,
)
