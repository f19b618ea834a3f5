"""In which dtype and range a bucket travels: what is done to it before and after.

Note [Scaling an average]
~~~~~~~~~~~~~~~~~~~~~~~~~
The mean of D ranks is their sum times 1/D, which may be multiplied in before the sum, or
after it, or some of it before and the rest after. In float32 and bfloat16 the range is so
wide that it does not matter. In float16, which holds 6e-8 to 65504, it does:

    after    the sum may overflow. That is loud: infinity stays infinity.
    before   what is small is rounded to 0 before it is summed. That is silent.
    split    a power of two near the square root of D before, and the rest after: only
             half of either risk. A power of two rounds nothing that stays normal.

So only "after" never adds a silent error, and it is the default. It is also the only one
that can be free: the factor is multiplied into that of `wait(scale=)`, and both into the
cast from the wire. What "split" adds is bounded: at most half the smallest subnormal of the
wire dtype for each rank, times the rest that is multiplied in after.
"""

from dataclasses import dataclass
from typing import Self

import torch
from typing_extensions import override

from .arguments import Scaling


@dataclass(frozen=True, slots=True)
class WireFormat:
    """How a bucket travels.

    Attributes:
        dtype: In which it is sent and summed.
        divisor: What the sum is divided by: 1, or the number of ranks of an average.
        before: What gradients are multiplied by before the sum.
        after: And after it; the two make 1 / divisor.
    """

    dtype: torch.dtype
    divisor: int = 1
    before: float = 1.0
    after: float = 1.0

    @classmethod
    def of(cls, dtype: torch.dtype, *, divisor: int, scaling: Scaling) -> Self:
        """Choose the factors, see Note [Scaling an average].

        Args:
            dtype: In which to send.
            divisor: 1 or more.
            scaling: When to divide.

        Returns:
            The format.
        """
        early = {"before": divisor, "after": 1, "split": _near_root(divisor)}[scaling]
        return cls(dtype, divisor, before=1 / early, after=early / divisor)

    @override
    def __str__(self) -> str:
        words = [f"as {str(self.dtype).removeprefix('torch.')}"]
        if self.divisor > 1:
            words.append(f"divided by {self.divisor}, times {self.before:g} before")
        return ", ".join(words)

    def load(self, buffer: torch.Tensor) -> torch.Tensor:
        """Make ready what is going to be summed, on the current stream.

        Args:
            buffer: Shape (N,), in the gradient dtype; may be multiplied in place.

        Returns:
            The buffer itself, or a copy in the wire dtype that is allocated here.
        """
        if self.dtype == buffer.dtype:
            return buffer if self.before == 1 else buffer.mul_(self.before)
        wire = torch.empty_like(buffer, dtype=self.dtype)
        if self.before == 1:
            return wire.copy_(buffer)
        # Multiplied in the wider of both dtypes, and rounded to the wire once.
        return torch.mul(buffer, _with_dim(self.before, buffer), out=wire)

    def unload(
        self, wire: torch.Tensor, buffer: torch.Tensor, scale: float | torch.Tensor
    ) -> None:
        """Put a sum back, multiplied by all that is to be multiplied after it, at once.

        Args:
            wire: Shape (N,), what was summed: the same memory where the dtype is.
            buffer: Shape (N,), in the gradient dtype.
            scale: A number, or a tensor without dims of any device.
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
        # A tensor without dims would be rounded to the dtype of what it multiplies. With
        # a dim it takes part in type promotion, and only the product is rounded.
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
