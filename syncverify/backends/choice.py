"""Choose a backend by name."""

from __future__ import annotations

import torch
import torch.distributed as dist

from syncverify.backends.fake import FakeBackend
from syncverify.backends.gloo import GlooBackend
from syncverify.backends.sim import SimBackend
from syncverify.backends.torchrun import TorchrunBackend
from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.subject import Subject

BACKEND_NAMES = ("sim", "gloo", "nccl", "fake")

AnyBackend = SimBackend | GlooBackend | FakeBackend | TorchrunBackend


def open_backend(name: str, subject: Subject) -> AnyBackend:
    """Make a backend; the caller closes it.

    Under torchrun, `gloo` and `nccl` use torchrun's processes as ranks.

    Args:
        name: One of `BACKEND_NAMES`.
        subject: What it will run.

    Returns:
        The backend, with no rank started yet.

    Raises:
        UsageError: There is no such backend, or the subject cannot run on it.
        EnvironmentNotSupportedError: The machine lacks what it needs.
    """
    if name in {"gloo", "fake"} and subject.capabilities.takes_cuda_streams:
        raise UsageError(
            f"subject {subject.name!r} does not run on the {name} backend: it takes its "
            "streams from torch.cuda by name; use --backend sim, or nccl with GPUs"
        )
    if name in {"sim", "fake"} and subject.capabilities.needs_processes:
        raise UsageError(
            f"subject {subject.name!r} does not run on the {name} backend: it keeps state "
            "for a whole process; use --backend gloo"
        )
    if name == "nccl":
        _check_nccl()
        return TorchrunBackend("nccl")
    if name == "gloo":
        return (
            TorchrunBackend("gloo")
            if dist.is_torchelastic_launched()
            else GlooBackend()
        )
    if name == "sim":
        return SimBackend()
    if name == "fake":
        if subject.capabilities.needs_data:
            raise UsageError(
                f"subject {subject.name!r} does not run on the fake backend: it needs the "
                "results of collectives"
            )
        return FakeBackend()
    raise UsageError(
        f"unknown backend {name!r}: expected one of {', '.join(BACKEND_NAMES)}"
    )


def _check_nccl() -> None:
    if not torch.cuda.is_available() or not dist.is_nccl_available():
        raise EnvironmentNotSupportedError(
            "the nccl backend needs CUDA GPUs and a torch built with NCCL; "
            "without them, use --backend sim or gloo"
        )
    if not dist.is_torchelastic_launched():
        raise EnvironmentNotSupportedError(
            "the nccl backend runs under torchrun: "
            "torchrun --nproc-per-node=N -m syncverify run SUBJECT --backend nccl"
        )
