"""The state of comm hooks by parameter, so that it outlives the cuts between buckets.

A comm hook keeps tensors for a bucket. Those with an element for each of the buffer belong
to the gradients there: they are parted by parameter, for a checkpoint or because buckets
are cut anew. Others belong to the bucket, and end with it.
"""

from collections.abc import Mapping

import torch

from syncverify.synchronizer.plan.grouping import BucketPlan

# By the name of a parameter and then by key of the hook; in the shape of the local gradient.
HookState = dict[str, dict[str, torch.Tensor]]


def parted(plan: BucketPlan, state: Mapping[str, torch.Tensor]) -> HookState:
    """Return copies of the state of a bucket, by parameter."""
    whole = {k: t for k, t in state.items() if t.shape == (plan.gradients_numel,)}
    return {
        member.name: {
            key: tensor[offset:]
            .as_strided(member.local_shape, member.local_stride)
            .clone()
            for key, tensor in whole.items()
        }
        for member, offset in zip(plan.members, plan.offsets_numel, strict=True)
        if whole
    }


def joined(
    plan: BucketPlan, state: Mapping[str, Mapping[str, torch.Tensor]]
) -> dict[str, torch.Tensor]:
    """Return the state of a bucket, with zeros where a parameter has none."""
    made: dict[str, torch.Tensor] = {}
    for member, offset in zip(plan.members, plan.offsets_numel, strict=True):
        for key, tensor in state.get(member.name, {}).items():
            if key not in made:
                made[key] = torch.zeros(
                    plan.gradients_numel, dtype=tensor.dtype, device=plan.key.device
                )
            place = made[key][offset:]
            place.as_strided(member.local_shape, member.local_stride).copy_(tensor)
    return made
