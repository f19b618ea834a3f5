"""torch's DistributedDataParallel with one option other than the default.

Each promises what `ddp` does: what an option adds is beyond a plain training step, and what
it takes away would be in the docstring of torch/nn/parallel/distributed.py:
https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from typing_extensions import override

from syncverify.features import ALL_BEYOND
from syncverify.subjects.ddp import DistributedDataParallelSubject


class _OfPlainSteps(DistributedDataParallelSubject):
    """What an option makes of steps beyond plain ones is not looked at."""

    capabilities = replace(
        DistributedDataParallelSubject.capabilities, outside=ALL_BEYOND
    )


class StaticGraphSubject(_OfPlainSteps):
    """`static_graph=True`: learns in the first iteration what later ones use.

    "The set of used and unused parameters will not change during the whole training loop":
    no scenario changes it. Nothing is said of `no_sync`, under which it fails: see
    docs/findings.md.
    """

    options: ClassVar[Mapping[str, Any]] = {"static_graph": True}


class FindUnusedSubject(_OfPlainSteps):
    """`find_unused_parameters=True`: walks the graph of each iteration."""

    options: ClassVar[Mapping[str, Any]] = {"find_unused_parameters": True}


class BucketViewSubject(_OfPlainSteps):
    """`gradient_as_bucket_view=True`: gradients are views into buckets."""

    options: ClassVar[Mapping[str, Any]] = {"gradient_as_bucket_view": True}


class CommHookSubject(_OfPlainSteps):
    """`register_comm_hook` with torch's own `allreduce_hook`.

    Its other hooks compress or leave out, so that no exact sum is promised.
    """

    @override
    def bind(self) -> None:
        super().bind()
        assert self._module is not None
        self._module.register_comm_hook(dist.group.WORLD, allreduce_hook)
