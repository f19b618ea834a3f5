"""The subject: the gradient synchronizer under test, and how to find it by name."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import nn

from syncverify.errors import SubjectError
from syncverify.scenario import REPLICATE, Scenario

REQUIRED_METHODS = ("bind", "wait", "zero_grad", "unbind")
BUILT_IN_SUBJECTS = {
    "synchronizer": "synchronizer:GradientSynchronizer",
    "d9d": "syncverify.subjects.d9d:D9dSubject",
    "ddp": "syncverify.subjects.ddp:DistributedDataParallelSubject",
    "ddp-bucket-view": "syncverify.subjects.ddp_variants:BucketViewSubject",
    "ddp-comm-hook": "syncverify.subjects.ddp_variants:CommHookSubject",
    "ddp-find-unused": "syncverify.subjects.ddp_variants:FindUnusedSubject",
    "ddp-static-graph": "syncverify.subjects.ddp_variants:StaticGraphSubject",
    "deepspeed-zero1": "syncverify.subjects.deepspeed:ZeroOneSubject",
    "deepspeed-zero2": "syncverify.subjects.deepspeed:ZeroTwoSubject",
    "fsdp2": "syncverify.subjects.fsdp2:FullyShardedSubject",
    "hsdp": "syncverify.subjects.fsdp2:HybridShardedSubject",
    "megatron": "syncverify.subjects.megatron:MegatronSubject",
    "megatron-shards": "syncverify.subjects.megatron:ShardedMegatronSubject",
    "replicate": "syncverify.subjects.replicate:ReplicateSubject",
    "replicate-fsdp": "syncverify.subjects.replicate:ReplicateAsFsdpSubject",
}


class Synchronizer(Protocol):
    """What a subject's instance offers."""

    def bind(self) -> None:
        """Start managing gradients."""

    def wait(self) -> None:
        """Return once gradients are safe to read on the current stream."""

    def zero_grad(self) -> None:
        """Start the next step."""

    def unbind(self) -> None:
        """Leave no hook, no buffer and no pending work."""


@runtime_checkable
class VariesAccumulations(Protocol):
    """A subject whose number of micro-batches may change between steps."""

    def set_required_accumulations(self, require_accumulations: int) -> None:
        """Set the number of micro-batches of the next step."""


@runtime_checkable
class EndsStepsEarly(Protocol):
    """A subject that is told where a step ends before all of its micro-batches ran."""

    def flush(self) -> None:
        """Reduce what came; `wait()` follows."""


@runtime_checkable
class Resets(Protocol):
    """A subject with a way back from a backward that failed; others `zero_grad()`."""

    def reset(self) -> None:
        """Be as after `bind()`; all ranks call it."""


@runtime_checkable
class RunsMicroBatches(Protocol):
    """A subject that must wrap forward and backward itself (as DDP does).

    One that covers the feature `backward` takes `run_backward=` as well, which it calls
    with what `compute_loss` returned, in place of that one's `backward()`.
    """

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run forward and backward of one micro-batch."""


SubjectFactory = Callable[[list[list[nn.Parameter]], float, int], Synchronizer]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a subject promises; scenarios outside of it are not drawn.

    Attributes:
        reduction: `sum`, or `mean` over the ranks that contribute.
        tensors: `dtensor`, or `local` for a subject that knows plain tensors only and
            reduces every one of them over all ranks.
        separate_grad_dtype: Whether gradients may have a dtype of their own.
        varying_accumulations: Whether the number of micro-batches may change.
        needs_data: Whether it cannot run where collectives move no data (`fake`).
        overlaps_backward: Whether it promises to reduce while backward still runs. A
            subject that declares no `Capabilities` says so by an attribute of this name.
        scalars: Whether parameters may have no dims.
        takes_cuda_streams: Whether it takes streams from `torch.cuda` by name, and so
            runs on GPUs and on `sim` only.
        outside: Features that its contract does not cover, as `topic=value` or `topic`:
            scenarios that have one are not drawn. See `syncverify.features`.
        promises: Features of which it promises the right gradient where a clear error
            would do for others.
        needs_nccl: Whether it counts on NCCL to run the collectives of a communicator one
            after the other; gloo runs them side by side.
        needs_processes: Whether it keeps state for a whole process, and so cannot run where
            ranks are threads (`sim`, `fake`).
        reduces_each_micro_batch: Whether it reduces in every micro-batch, and keeps sums
            of what was reduced.
    """

    reduction: Literal["sum", "mean"] = "sum"
    tensors: Literal["dtensor", "local"] = "dtensor"
    separate_grad_dtype: bool = True
    varying_accumulations: bool = False
    needs_data: bool = False
    overlaps_backward: bool = False
    scalars: bool = True
    takes_cuda_streams: bool = False
    needs_nccl: bool = False
    needs_processes: bool = False
    reduces_each_micro_batch: bool = False
    outside: frozenset[str] = frozenset()
    promises: frozenset[str] = frozenset()

    def covers(self, topic: str, value: str) -> bool:
        """Tell whether scenarios with a feature may be drawn."""
        return self.outside.isdisjoint((topic, f"{topic}={value}"))

    def is_owed(self, topic: str, value: str) -> bool:
        """Tell whether the right gradient is promised where others may raise."""
        return not self.promises.isdisjoint((topic, f"{topic}={value}"))

    def lacking(self, scenario: Scenario) -> str | None:
        """Name what a scenario needs and the subject does not promise, if anything."""
        specs = scenario.parameters
        if self.tensors == "local" and any(
            spec.placements is None or set(spec.placements) != {REPLICATE}
            for spec in specs
        ):
            return "to handle parameters that are not replicated over all ranks"
        if not self.separate_grad_dtype and any(spec.grad_dtype for spec in specs):
            return "to handle gradients with a dtype of their own"
        if not self.scalars and any(not spec.global_shape for spec in specs):
            return "to handle parameters without dims"
        if not self.varying_accumulations and len(set(scenario.accumulations)) > 1:
            return "to handle a varying number of micro-batches"
        return None


DEFAULT_CAPABILITIES = Capabilities()


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject that was found and looked at.

    Attributes:
        name: As the caller spelled it.
        factory: Makes one synchronizer per rank.
        capabilities: What it promises.
    """

    name: str
    factory: SubjectFactory
    capabilities: Capabilities


def resolve(subject: str | SubjectFactory) -> Subject:
    """Find a subject and check that it has the subject API.

    Args:
        subject: A built-in name, `module:attribute`, or the class or factory itself.

    Returns:
        The subject and what it promises.

    Raises:
        SubjectError: It cannot be imported, or lacks a part of the API.
    """
    if isinstance(subject, str):
        factory, name = _load(BUILT_IN_SUBJECTS.get(subject, subject)), subject
    else:
        factory, name = subject, getattr(subject, "__qualname__", repr(subject))
    if not callable(factory):
        raise SubjectError(
            f"subject {name!r} is not callable: expected a class or factory"
        )
    _check_signature(factory, name)
    if inspect.isclass(factory):
        check_methods(factory, name)
    return Subject(name, factory, _capabilities(factory))


def check_methods(candidate: object, name: str) -> None:
    """Refuse a subject that lacks a required method.

    Args:
        candidate: A class, or what a factory made.
        name: The subject's name, for the message.

    Raises:
        SubjectError: A method is missing.
    """
    missing = [m for m in REQUIRED_METHODS if not callable(getattr(candidate, m, None))]
    if missing:
        raise SubjectError(
            f"subject {name!r} lacks {', '.join(f'{m}()' for m in missing)}: "
            f"a subject has {', '.join(f'{m}()' for m in REQUIRED_METHODS)}"
        )


def _capabilities(factory: SubjectFactory) -> Capabilities:
    declared = getattr(factory, "capabilities", None)
    if isinstance(declared, Capabilities):
        return declared
    varies = callable(getattr(factory, "set_required_accumulations", None))
    overlaps = bool(getattr(factory, "overlaps_backward", False))
    outside = frozenset(getattr(factory, "outside", ()))
    return Capabilities(
        varying_accumulations=varies, overlaps_backward=overlaps, outside=outside
    )


def _check_signature(factory: SubjectFactory, name: str) -> None:
    try:
        inspect.signature(factory).bind([], 1.0, 1)
    except (TypeError, ValueError) as error:
        raise SubjectError(
            f"subject {name!r} cannot be called as "
            f"(param_groups, bucket_size_mb, require_accumulations): {error}"
        ) from error


def _load(path: str) -> SubjectFactory:
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise SubjectError(
            f"unknown subject {path!r}: expected one of "
            f"{', '.join(sorted(BUILT_IN_SUBJECTS))}, or module:attribute"
        )
    working_directory = str(Path.cwd())
    if working_directory not in sys.path:
        sys.path.insert(0, working_directory)
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # a script without a guard may even exit
        raise SubjectError(
            f"subject {path!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return found  # type: ignore[return-value]  # resolve() checks it
