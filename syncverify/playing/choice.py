"""The choice of a backend by its name, and the refusals of subjects that it cannot run."""

from typing import Final

import torch
import torch.distributed as dist

from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.playing.fake import FakeBackend
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.known_groups import require_known_groups
from syncverify.playing.program.modules import provide_layers
from syncverify.playing.sim import SimBackend
from syncverify.playing.streams import StreamsBackend
from syncverify.playing.torchrun import TorchrunBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.settings import BACKEND_NAMES, NCCL_NAMES
from syncverify.sim.device.nccl_names import known_libraries
from syncverify.sim.known_torch import require_known_torch, require_tested_torch
from syncverify.subjects.subject import Subject

# Features that a backend cannot play.
# - A collective of `fake` moves no data, so ranks cannot agree: on an order of buckets, where
#   gradients become ready in different orders, or on the launches of a step that is thrown away.
# - The representatives of `fake` are not chosen for a permuted mesh.
# - Neither `fake` nor a real network fails on request.
_FAILING: Final = Feature("event", "failing_collectives")
_NOT_PLAYED: Final = {
    "fake": frozenset(
        {
            Feature("readiness", "by_rank"),
            Feature("event", "raise_in_backward"),
            Feature("mesh", "permuted"),
            _FAILING,
        }
    ),
    "gloo": frozenset({_FAILING}),
    **dict.fromkeys(NCCL_NAMES, frozenset({_FAILING})),
}

AnyBackend = SimBackend | StreamsBackend | GlooBackend | FakeBackend | TorchrunBackend


def open_backend(name: str, subject: Subject) -> AnyBackend:
    """Open one of `BACKEND_NAMES`; the caller closes it.

    Raises:
        UsageError: The name is unknown, the subject cannot run on the backend, or a layer of
            its contract cannot be trained.
        EnvironmentNotSupportedError: The machine lacks hardware or software of the backend,
            or its torch is one on which right programs fail.
        NoVerdictError: A rank of the torchrun job does not come.
    """
    if lacking := _lacking(name, subject.capabilities):
        raise UsageError(
            f"subject {subject.name!r} does not run on the {name} backend: it {lacking}"
        )
    provide_layers(subject.capabilities)
    if name in NCCL_NAMES:
        _check_nccl(name)
    require_known_torch()
    require_known_groups(name)
    match name:
        case "sim" | "streams":
            require_tested_torch()
            return SimBackend() if name == "sim" else StreamsBackend()
        case "gloo":
            is_torchrun = dist.is_torchelastic_launched()
            return TorchrunBackend("gloo", subject) if is_torchrun else GlooBackend()
        case "fake":
            return FakeBackend()
        case _ if name in NCCL_NAMES:
            return TorchrunBackend(name, subject)
    raise UsageError(
        f"unknown backend {name!r}: expected one of {', '.join(BACKEND_NAMES)}"
    )


def features_not_played(backend: str, capabilities: Capabilities) -> frozenset[str]:
    """Return the features that a contract promises and that a backend cannot play."""
    return frozenset(
        str(feature)
        for feature in _NOT_PLAYED.get(backend, ())
        if capabilities.covers(*feature)
    )


def limits_of(backend: str, capabilities: Capabilities) -> list[str]:
    """Return what a backend does not play or judge of a contract, in words."""
    limits = list[str]()
    not_played = features_not_played(backend, capabilities)
    if not_played:
        limits.append(f"not tried on {backend}: {', '.join(sorted(not_played))}")
    if backend in {"gloo", "fake"} and capabilities.takes_cuda_streams:
        limits.append(
            f"not judged on {backend}: the order of streams, since all work runs at once "
            "there; play the subject on sim as well"
        )
    return limits


def _lacking(name: str, needs: Capabilities) -> str:
    """Return the need of a subject that a backend does not meet, or ""."""
    if name in {"gloo", "fake"} and needs.device == "cuda":
        return (
            "has a contract with device = 'cuda'; use --backend sim, nccl with GPUs, "
            "or a contract without it"
        )
    if name in {"sim", "fake"} and needs.needs_processes:
        return "keeps state for a whole process; use --backend gloo"
    if name == "fake" and needs.needs_data:
        return "needs the results of collectives"
    return ""


def _check_nccl(name: str) -> None:
    if not torch.cuda.is_available() or not dist.is_nccl_available():
        raise EnvironmentNotSupportedError(
            f"the {name} backend needs CUDA GPUs and a torch built with NCCL; "
            "without them, use --backend sim or gloo"
        )
    if name not in known_libraries():
        raise EnvironmentNotSupportedError(
            f"the {name} backend needs torch 2.14 or newer, and this is torch "
            f"{torch.__version__}; use --backend nccl"
        )
    if not dist.is_torchelastic_launched():
        raise EnvironmentNotSupportedError(
            f"the {name} backend runs under torchrun: "
            f"torchrun --nproc-per-node=N -m syncverify run SUBJECT --backend {name}"
        )
