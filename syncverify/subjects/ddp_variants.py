"""torch's DistributedDataParallel with one option other than the default.

Each variant promises plain training steps, as `ddp` does, and the features in its file of
`contracts/`. The docstring of torch/nn/parallel/distributed.py takes no plain step away for any of
the options.

Source:
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from syncverify.subjects.adapters import LossModule
from syncverify.subjects.ddp import DistributedDataParallelSubject

SUBJECTS = {
    "ddp-bucket-view": "BucketViewSubject",
    "ddp-comm-hook": "CommHookSubject",
    "ddp-find-unused": "FindUnusedSubject",
    "ddp-static-graph": "StaticGraphSubject",
}


class StaticGraphSubject(DistributedDataParallelSubject):
    """`static_graph=True`: learns in the first iteration the parameters of later ones.

    "The set of used and unused parameters will not change during the whole training loop":
    no plain step changes the set. The docstring does not mention `no_sync`, under which the
    option fails: see docs/findings.md.
    """

    options: ClassVar[Mapping[str, Any]] = {"static_graph": True}


class FindUnusedSubject(DistributedDataParallelSubject):
    """`find_unused_parameters=True`: walks the graph of each iteration."""

    options: ClassVar[Mapping[str, Any]] = {"find_unused_parameters": True}


class BucketViewSubject(DistributedDataParallelSubject):
    """`gradient_as_bucket_view=True`: gradients are views into buckets."""

    options: ClassVar[Mapping[str, Any]] = {"gradient_as_bucket_view": True}


class CommHookSubject(DistributedDataParallelSubject):
    """`register_comm_hook` with torch's own `allreduce_hook`.

    torch's other hooks compress gradients or leave parts out, and promise no exact sum.
    """

    @override
    def wrap(self, module: LossModule) -> DistributedDataParallel:
        wrapped = super().wrap(module)
        wrapped.register_comm_hook(dist.group.WORLD, allreduce_hook)
        return wrapped
