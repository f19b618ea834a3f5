"""The contract of a subject: the scenarios that it covers, and its promises."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final, Literal

from syncverify.scenario.plain_features import is_plain

# Values of plain training steps that a field of the contract leaves out.
_LEFT_OUT_BY_FIELD: Final = (
    (
        *("tensors", "local"),
        (
            *("parameters=sharded", "parameters=uneven or empty shard"),
            *("parameters=plain", "placement"),
        ),
    ),
    ("separate_grad_dtype", False, ("dtype=own gradient dtype",)),
    ("varying_accumulations", False, ("accumulations=varying",)),
    ("scalars", False, ("parameters=scalar",)),
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The contract of a subject; no scenario outside of it is drawn.

    Attributes:
        reduction: Gradients are the `sum` or the `mean` over the contributing ranks.
        tensors: `dtensor`; or `local` for a subject that knows plain tensors only and
            reduces each of them over all ranks.
        separate_grad_dtype: Gradients may have another dtype than their parameters.
        varying_accumulations: The number of micro-batches may change between steps.
        needs_data: Collectives have to move data, which those of `fake` do not.
        overlaps_backward: The subject promises to reduce while backward still runs. A
            subject without `Capabilities` says so by an attribute of this name.
        scalars: Parameters may have no dims.
        takes_cuda_streams: The subject takes streams from `torch.cuda` by name, and so
            runs only on GPUs and on `sim`.
        needs_nccl: The subject relies on NCCL, which runs the collectives of one
            communicator one after the other; gloo runs them side by side.
        needs_processes: The subject keeps state for a whole process, and so cannot run
            where ranks are threads (`sim`, `fake`).
        reduces_each_micro_batch: The subject reduces in every micro-batch, and
            accumulates reduced gradients.
        outside: Features that the contract does not cover, as `topic=value`; no scenario
            that is drawn has one. A `topic` alone stands for its features beyond plain
            steps, see `syncverify.scenario.features`. Values of plain steps are in
            `syncverify.scenario.plain_features`. Example: `dtype=float16`.
        promises: Features, spelled like those of `outside`, for which the subject
            promises the right gradient where a clear error would be enough.
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
        """Tell whether the contract covers a feature."""
        if is_plain(topic, value):  # a topic stands for its features beyond plain steps
            return f"{topic}={value}" not in _left_out(self)
        return _left_out(self).isdisjoint((topic, f"{topic}={value}"))

    def promises_gradient(self, topic: str, value: str) -> bool:
        """Tell whether a feature's right gradient is promised, and no error is enough."""
        return not self.promises.isdisjoint((topic, f"{topic}={value}"))


@functools.cache
def _left_out(capabilities: Capabilities) -> frozenset[str]:
    """List the features that a contract leaves out, by `outside` or by another field."""
    by_fields = (
        features
        for field, value, features in _LEFT_OUT_BY_FIELD
        if getattr(capabilities, field) == value
    )
    return capabilities.outside.union(*by_fields)


DEFAULT_CAPABILITIES = Capabilities()
