"""The contract of a subject: the scenarios that it covers, and its promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import REPLICATE


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
        outside: Features that the contract does not cover, as `topic=value` or `topic`;
            no scenario that is drawn has one. See `syncverify.scenario.features`.
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
        return self.outside.isdisjoint((topic, f"{topic}={value}"))

    def promises_gradient(self, topic: str, value: str) -> bool:
        """Tell whether a feature's right gradient is promised, and no error is enough."""
        return not self.promises.isdisjoint((topic, f"{topic}={value}"))

    def lacking(self, scenario: Scenario) -> str | None:
        """Name the first thing that a scenario needs and the contract lacks, or None."""
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
