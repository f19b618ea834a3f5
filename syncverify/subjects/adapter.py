"""The shared parts of adapters for wrappers of modules, which manage plain tensors only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from typing_extensions import override

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import ALL_OPTIONAL_TOPICS

# Plain training steps of local tensors, averaged over all ranks.
LOCAL_MEAN = Capabilities(
    outside=ALL_OPTIONAL_TOPICS,
    reduction="mean",
    tensors="local",
    separate_grad_dtype=False,
    varying_accumulations=True,
    needs_data=True,
)
_BYTES_PER_ELEMENT = 4  # of float32


class LossModule(nn.Module):
    """Owns the parameters, and runs the forward that it gets as an argument."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self.parameter_list = nn.ParameterList(parameters)

    @override
    def forward(self, compute_loss: Callable[[], Any]) -> Any:
        return compute_loss()


class Adapter:
    """Holds the parameters until `bind()` wraps them.

    Args:
        param_groups: Parameters by group.
        bucket_size_mb: Bucket size in MiB, called MB by the libraries.
        require_accumulations: Unused: the wrapper is told of the last micro-batch.
    """

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        self._param_groups = param_groups
        self._parameters = [parameter for group in param_groups for parameter in group]
        self._bucket_size_mb = bucket_size_mb

    def _bucket_numel(self) -> int:
        """Return the bucket size in elements of float32, at least 1."""
        return max(1, int(self._bucket_size_mb * 2**20) // _BYTES_PER_ELEMENT)

    def _trainable(self) -> Iterator[nn.Parameter]:
        return (parameter for parameter in self._parameters if parameter.requires_grad)
