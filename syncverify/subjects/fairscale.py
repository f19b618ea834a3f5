"""fairscale's ShardedDataParallel, around its sharded optimizer OSS, as a subject."""

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.subjects.adapters import LOCAL_MEAN, LossModule, ModuleAdapter
from syncverify.subjects.built_in import missing_package

SUBJECTS = {"fairscale": "FairscaleSubject"}
PACKAGE = "fairscale"

try:
    from fairscale.nn.data_parallel import ShardedDataParallel
    from fairscale.optim import OSS
except ModuleNotFoundError as error:
    raise missing_package(PACKAGE, error) from error


class FairscaleSubject(ModuleAdapter):
    """Gives ShardedDataParallel the subject API.

    fairscale averages: it scales each gradient by the inverse of the world size. "Each rank
    only owns a unique shard of the model gradients after the backward pass", says its
    docstring, so each gradient counts on one rank, which OSS names. Small parameters share
    buckets of `reduce_buffer_size` elements.

    Source:
        fairscale/nn/data_parallel/sharded_ddp.py and fairscale/optim/oss.py, of 0.4.13.
    """

    capabilities = replace(
        LOCAL_MEAN, gradients="owner", outside=frozenset({"dtype=several"})
    )

    @override
    def wrap(self, module: LossModule) -> ShardedDataParallel:
        self._optimizer = OSS(self.parameters, optim=torch.optim.SGD, lr=0.0)
        return ShardedDataParallel(
            module, self._optimizer, reduce_buffer_size=self.bucket_numel
        )

    def owner(self, parameter: nn.Parameter) -> bool:
        """Tell whether OSS updates the parameter on this rank."""
        # Releases before 0.3.5 show the property without the underscore.
        name = "_param_to_rank" if hasattr(OSS, "_param_to_rank") else "param_to_rank"
        rank: int = getattr(self._optimizer, name)[parameter]
        return rank == dist.get_rank()
