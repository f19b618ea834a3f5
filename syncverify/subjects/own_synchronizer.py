"""Our own synchronizer, which here also takes scenarios of ordinary parameters alone."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Final

import torch
import torch.distributed as dist
from torch import nn

from syncverify.subjects.subject_options import SubjectOption, one_of

SUBJECTS = {"synchronizer": "OwnSynchronizer"}

# By name: a harness that imports its subject can verify neither another subject nor a mutant.
_PACKAGE: Any = import_module("syncverify.synchronizer")


def _all_reduce(bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Reduce a bucket as the synchronizer does without a comm hook."""
    work = dist.all_reduce(bucket.buffer, group=bucket.group, async_op=True)
    assert work is not None, "this rank is a member of the group it reduces over"
    reduced: torch.futures.Future[torch.Tensor] = work.get_future().then(
        lambda _: bucket.buffer
    )
    return reduced


_HOOKS: Final = {"all_reduce": _all_reduce}


class OwnSynchronizer(_PACKAGE.GradientSynchronizer):  # type: ignore[misc]  # imported by name
    """Sums as `GradientSynchronizer` does; ordinary parameters alone are no mistake here.

    The contract keeps their gradients local. `GradientSynchronizer` refuses them by default, since
    its user may have forgotten the process group.

    Options are written behind the name, as in `synchronizer:comm_hook=all_reduce`: fields of
    `SynchronizerConfig` that choose other code and change no promise of the contract.
    """

    takes_options: ClassVar[Mapping[str, SubjectOption]] = {
        "comm_hook": one_of({name: name for name in _HOOKS}),
        "unused": one_of({"keep_none": "keep_none"}),
    }
    options: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        chosen = dict(self.options)
        if "comm_hook" in chosen:
            chosen["comm_hook"] = _HOOKS[chosen["comm_hook"]]
        config = _PACKAGE.SynchronizerConfig(allow_local_only=True, **chosen)
        super().__init__(
            param_groups, bucket_size_mb, require_accumulations, config=config
        )
