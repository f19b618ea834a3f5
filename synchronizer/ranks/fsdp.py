"""Parameters whose gradients FSDP2 or `replicate` reduces itself, during backward.

The only module that reads private attributes of FSDP2: a parameter does not tell who manages
it. `tests/synchronizer/plan/test_fsdp.py` states the facts that it relies on.
"""

from collections.abc import Collection, Iterator
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed import _composable_state


def ranks_summed_by_fsdp(
    parameters: Collection[nn.Parameter],
) -> dict[nn.Parameter, tuple[int, ...]]:
    """Return the global ranks over which FSDP2 all-reduces gradients, by parameter.

    FSDP2 on a mesh with a replicated axis, and `replicate`, sum over that axis. The result
    lacks parameters of FSDP2 on a sharded axis alone, which scatters over that axis.
    """
    wanted = {*parameters}
    return {
        managed.sharded_param: ranks
        for group in _parameter_groups()
        for managed in group.fsdp_params
        # Asked first, because parameters of an earlier job have process groups that are gone.
        if managed.sharded_param in wanted
        and len(ranks := _replicated_ranks(group.mesh_info)) > 1
    }


def _parameter_groups() -> Iterator[Any]:
    # Weak references, by module; other composable functions keep their state there too.
    for reference in _composable_state._module_state_mapping.values():  # noqa: SLF001
        yield from getattr(reference(), "_fsdp_param_groups", ())


def _replicated_ranks(mesh_info: Any) -> tuple[int, ...]:
    group = getattr(mesh_info, "replicate_process_group", None)
    return () if group is None else tuple(sorted(dist.get_process_group_ranks(group)))
