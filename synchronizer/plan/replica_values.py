"""Checksums of parameters, by which ranks that sum a gradient compare their replicas."""

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from syncverify.synchronizer.plan.grouping import BucketPlan, local_tensor

# By the size of an element, in bytes.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def checksums(plans: Sequence[BucketPlan]) -> dict[nn.Parameter, int]:
    """Return a checksum of each parameter that several ranks reduce.

    The checksum is the sum of the bits of all elements, each as an integer: exact, equal on all
    kinds of devices, and blind to an exchange of two elements. The host waits once for a device.

    Args:
        plans: The buckets of this rank.

    Returns:
        Checksums of the local shards; none of a parameter on the meta device.
    """
    sums = dict(_sums(plans))
    by_device: dict[torch.device, list[nn.Parameter]] = {}
    for parameter, each in sums.items():
        by_device.setdefault(each.device, []).append(parameter)
    return {
        parameter: value
        for group in by_device.values()
        for parameter, value in zip(
            group, torch.stack([sums[p] for p in group]).tolist(), strict=True
        )
    }


def _sums(plans: Sequence[BucketPlan]) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
    reduced = [member for plan in plans if plan.scope for member in plan.members]
    for member in reduced:
        local = local_tensor(member.parameter)
        if _has_memory(local):
            yield member.parameter, _bits(local).sum(dtype=torch.int64)


def _has_memory(local: torch.Tensor) -> bool:
    # A class that handles its own operators, such as a fake tensor, may hold no bits.
    handler = type(local).__torch_dispatch__
    return not local.is_meta and handler is torch.Tensor.__torch_dispatch__


def _bits(local: torch.Tensor) -> torch.Tensor:
    """Return the memory of a tensor as integers; of a complex one, both parts."""
    local = local.resolve_conj().resolve_neg()
    real = torch.view_as_real(local) if local.is_complex() else local
    return real.view(_INTEGERS[real.itemsize])
