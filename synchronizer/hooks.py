"""Comm hooks that are ready for use: sums in bfloat16, half the traffic of float32.

Each of these is a value of `SynchronizerConfig(comm_hook=...)`, the same on all ranks.
A gradient is rounded to 8 significant bits before the sum, and the sum again wherever
the process group rounds. Gradients are still accumulated in their own dtype.
"""

import torch
import torch.distributed as dist

from .comm_hook import HookBucket


def bf16_compression(bucket: HookBucket) -> torch.futures.Future[torch.Tensor]:
    """Sum a bucket in bfloat16.

    Args:
        bucket: Of a dtype that bfloat16 does not hold exactly; otherwise it is useless.

    Returns:
        A future of the sums, in bfloat16.
    """
    return _all_reduce(bucket.buffer.bfloat16(), bucket.group)


def bf16_error_feedback(bucket: HookBucket) -> torch.futures.Future[torch.Tensor]:
    """Sum a bucket in bfloat16, and make up in the next step for what was rounded away.

    What this rank's own rounding lost is kept and added to the next gradient, so over
    many steps it does not add up. What the process group rounds is lost.

    The residual is as large as the bucket, stays on the device in `offload()`, and
    belongs to the bucket: `unbind()` and `reset()` lose it, and no checkpoint holds it.
    What is lost is less than one rounding of one step.

    Args:
        bucket: Of a dtype that bfloat16 does not hold exactly.

    Returns:
        A future of the sums, in bfloat16.

    Source:
        Seide et al., "1-Bit Stochastic Gradient Descent" (Interspeech 2014), section 3.1.
    """
    buffer = bucket.buffer
    residual = bucket.state.get("residual")
    if residual is None:
        residual = bucket.state["residual"] = torch.zeros_like(buffer)
    buffer.add_(residual)
    compressed = buffer.bfloat16()
    torch.sub(buffer, compressed, out=residual)
    # Otherwise a gradient that is not finite would spoil every step after its own.
    torch.nan_to_num(residual, nan=0.0, posinf=0.0, neginf=0.0, out=residual)
    return _all_reduce(compressed, bucket.group)


def _all_reduce(
    tensor: torch.Tensor, group: dist.ProcessGroup
) -> torch.futures.Future[torch.Tensor]:
    """Sum a tensor in place; the future keeps it alive."""
    work = dist.all_reduce(tensor, group=group, async_op=True)
    assert work is not None, "this rank is a member of the group it reduces over"
    future: torch.futures.Future[torch.Tensor] = work.get_future().then(
        lambda _: tensor
    )
    return future
