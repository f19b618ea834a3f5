"""The dtype in which a bucket is sent, and the factors before and after the sum.

Note [Scaling an average]
~~~~~~~~~~~~~~~~~~~~~~~~~
The mean of D ranks is their sum times 1/D. The factor can be applied after the sum, or
split between both sides of it. In float32 and bfloat16 the range is so wide that the
choice does not matter. In float16, which holds 6e-8 to 65504, it does:

    after    the sum may overflow. That is loud: infinity stays infinity.
    before   small values are rounded to 0 before the sum. That is silent, so this is not
             offered. It would not be faster either.
    split    a power of two near the square root of D before, and the rest after: only
             half of either risk. A power of two rounds no value that stays normal.

So only "after" never adds a silent error, and it is the default. It is also the only
one that can be free: the factor is multiplied into the one of `wait(scale=)`, and both
into the cast from the wire. The error of "split" is bounded: at most half the smallest
subnormal of the wire dtype for each rank, times the factor after the sum.
"""

from dataclasses import dataclass
from typing import Self

import torch
from typing_extensions import override

from syncverify.synchronizer.contract.arguments import Scaling


@dataclass(frozen=True, slots=True)
class WireFormat:
    """The format in which a bucket is sent and summed.

    Attributes:
        dtype: Dtype of the sum.
        divisor: Divisor of the sum: 1, or the number of ranks on the averaged axes.
        before: Factor of the gradients before the sum.
        after: Factor of the sum; the product of both factors is 1 / divisor.
    """

    dtype: torch.dtype
    divisor: int = 1
    before: float = 1.0
    after: float = 1.0

    @classmethod
    def of(cls, dtype: torch.dtype, *, divisor: int, scaling: Scaling) -> Self:
        """Choose the factors, see Note [Scaling an average]."""
        early = 1 if scaling == "after" else _near_root(divisor)
        return cls(dtype, divisor, before=1 / early, after=early / divisor)

    @override
    def __str__(self) -> str:
        words = [f"as {str(self.dtype).removeprefix('torch.')}"]
        if self.divisor > 1:
            words.append(f"divided by {self.divisor}, times {self.before:g} before")
        return ", ".join(words)

    def load(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return a buffer for the sum, of shape (N,), on the current stream.

        The result is the buffer, possibly multiplied in place, or a copy in the wire
        dtype, allocated on the current stream.
        """
        if self.dtype == buffer.dtype:
            return buffer if self.before == 1 else buffer.mul_(self.before)
        wire = torch.empty_like(buffer, dtype=self.dtype)
        if self.before == 1:
            return wire.copy_(buffer)
        # The product is computed in the wider of both dtypes and rounded once, to the wire.
        return torch.mul(buffer, _with_dim(self.before, buffer), out=wire)

    def unload(
        self, wire: torch.Tensor, buffer: torch.Tensor, scale: float | torch.Tensor
    ) -> None:
        """Write a sum back into the buffer, multiplied once by all factors.

        The shapes are (N,). `wire` is the memory of the buffer where the dtypes are
        equal. `scale` is a number, or a tensor without dims of any device.
        """
        factor = self._late_factor(scale, buffer)
        if not isinstance(factor, torch.Tensor):
            if factor == 1:
                if wire.dtype != buffer.dtype:
                    buffer.copy_(wire)
                return
            if wire.dtype != buffer.dtype:
                factor = _with_dim(factor, buffer)
        torch.mul(wire, factor, out=buffer)

    def _late_factor(
        self, scale: float | torch.Tensor, buffer: torch.Tensor
    ) -> float | torch.Tensor:
        if not isinstance(scale, torch.Tensor):
            return scale * self.after
        # torch rounds a tensor without dims to the dtype of the other factor. With a dim
        # it takes part in type promotion, and only the product is rounded.
        scale = scale.to(buffer.device, non_blocking=True).reshape(1)
        if self.after == 1:
            return scale
        real = buffer.dtype.to_real()
        wide = torch.promote_types(
            torch.promote_types(scale.dtype, real), torch.float32
        )
        return scale.to(wide) * self.after


def _near_root(divisor: int) -> int:
    """Return a power of two between the square root of half and of twice a number."""
    return 1 << (divisor.bit_length() // 2)


def _with_dim(factor: float, buffer: torch.Tensor) -> torch.Tensor:
    """Make a factor that takes part in type promotion, on the device."""
    dtype = torch.promote_types(buffer.dtype, torch.float32)
    return torch.full((1,), factor, dtype=dtype, device=buffer.device)
