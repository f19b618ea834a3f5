"""Our own synchronizer, in scenarios whose parameters are all ordinary too."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import nn

SUBJECTS = {"synchronizer": "OwnSynchronizer"}

# By name: a harness that imports its subject can verify neither another nor a mutant of it.
_PACKAGE: Any = import_module("syncverify.synchronizer")


class OwnSynchronizer(_PACKAGE.GradientSynchronizer):  # type: ignore[misc]  # imported by name
    """Sums as `GradientSynchronizer` does; ordinary parameters alone are no mistake here.

    The contract keeps their gradients local. The class itself takes a process group that is
    missing for a mistake of its user.
    """

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        config = _PACKAGE.SynchronizerConfig(allow_local_only=True)
        super().__init__(
            param_groups, bucket_size_mb, require_accumulations, config=config
        )
