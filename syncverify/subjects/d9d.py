"""d9d's gradient synchronizer as a subject, unmodified."""

from __future__ import annotations

from torch import nn
from typing_extensions import override

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.missing_package import missing_package

try:
    from d9d.internals.grad_sync import GradientSynchronizer
except ModuleNotFoundError as error:
    raise missing_package("d9d", error) from error


class D9dSubject(GradientSynchronizer):  # type: ignore[misc]  # untyped, or missing
    """Gives d9d's synchronizer the subject API; only the constructor differs.

    d9d sums. It takes its stream from `torch.cuda` by name, whose order `sim` judges. It
    promises to overlap: a hook in backward reduces each full bucket.

    Args:
        param_groups: Parameters by group.
        bucket_size_mb: Bucket size in MiB, called MB by d9d.
        require_accumulations: Micro-batches of the first step.
    """

    capabilities = Capabilities(
        varying_accumulations=True,
        overlaps_backward=True,
        takes_cuda_streams=True,
    )

    @override
    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        super().__init__(param_groups, bucket_size_mb)
        self.set_required_accumulations(require_accumulations)
