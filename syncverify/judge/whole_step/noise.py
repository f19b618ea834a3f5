"""Rounding noise: how far a right step may be from the reference.

The order of additions on a mesh differs from that on one rank. A training can amplify so
small a difference: AdamW divides a gradient by its own size, so the noise of a gradient that is
zero in exact arithmetic decides about a whole step of the parameter. So the reference is played
again with rounding noise. How far these plays are from the reference is what rounding can do to
this training.

Note [Where the noise comes from]

A sum of n terms that is computed in any order is the exact sum of terms x_i (1 + d_i), where
abs(d_i) <= (n - 1) u and u is the unit roundoff, half of `eps`. The same holds for products of
matrices, with n + 1 roundings of each term (Higham, Accuracy and Stability of Numerical
Algorithms, sections 3.1 and 4.2). So the noise changes what an operator *reads*. Noise in its
result alone is too small where terms cancel: the result is small, and its error is not. The
result is rounded once more, so it is changed too.

The bound (n - 1) u is for errors that all have one sign. Errors of random sign grow with the
root of n. The noise has independent signs, so its sum grows like that, and only the factor in
front is a choice: 32 u in each element, and then 4 times the largest of the differences. For one
sum of n terms of one size this is 128 u times the root of n, and the bound of the worst order is
(n - 1) u n / 2: larger only from n = 41 on, and only if all errors agree.

Plays come in pairs with opposite noise. To first order, both move a value by the same amount in
opposite directions. A value that depends on the sign of a gradient that is zero in exact
arithmetic, such as a step of AdamW with a small `eps`, jumps in one play of the pair if the noise
is larger than the rounding of the reference. It is 32 times as large.

Note [The bound in lower dtypes] in `lower_noise.py` has smaller noise, and a sharper bound.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from typing_extensions import override

# Size of the noise, in units of roundoff.
_ROUNDINGS: Final = 32.0
# Each pair of plays is a sample of the noise, and not its bound.
NOISE_FACTOR: Final = 4.0
# Collectives do not round on one rank, and each is waited for by the tensor that it returned.
COLLECTIVES: Final = ("c10d", "_c10d_functional")


def _writes(func: Any) -> bool:
    """Tell whether an operator writes memory that it was given, or returns it."""
    schema = func._schema  # noqa: SLF001  # there is no public one
    return schema.is_mutable or any(each.alias_info for each in schema.returns)


def _dispatches(kind: Any) -> bool:
    """Tell whether a class of tensors dispatches operators itself."""
    has_own: bool = kind.__torch_dispatch__ != torch.Tensor.__torch_dispatch__
    return has_own


def computes_no_values(func: Any, types: Any) -> bool:
    """Tell whether an operator is a collective, or has the empty tensors with which DTensor plans."""
    return func.namespace in COLLECTIVES or any(map(_dispatches, types))


class NoiseOfSteps(Protocol):
    """Noise of any kind."""

    def mode(self, step: int) -> AbstractContextManager[object]:
        """Return the block in which a step has noise."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a training."""

    seed: int
    sign: float

    def mode(self, step: int) -> RoundingNoise:
        """Return the block in which a step has noise."""
        return RoundingNoise(self.seed + step, self.sign)


PAIR_OF_NOISES: Final = (Noise(1000, 1.0), Noise(1000, -1.0))


class RoundingNoise(TorchDispatchMode):
    """Change what each operator reads and returns by random parts of a unit roundoff.

    Args:
        seed: Seed of the noise.
        sign: 1, or -1 for the opposite noise.
    """

    def __init__(self, seed: int, sign: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator().manual_seed(seed)
        self._sign = sign

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # A DTensor calls operators of its local tensors, and they come here too.
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented
        kwargs = kwargs or {}
        if computes_no_values(func, types) or func.is_view or _writes(func):
            return func(*args, **kwargs)
        args, kwargs = tree_map(self._noisy, (args, kwargs))
        return tree_map(self._noisy, func(*args, **kwargs))

    def _noisy(self, value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        unit = torch.finfo(value.dtype).eps / 2
        noise = torch.rand(value.shape, generator=self._generator, dtype=torch.float64)
        factor = 1 + (2 * noise - 1) * self._sign * _ROUNDINGS * unit
        return (value.double() * factor).to(value.dtype)
