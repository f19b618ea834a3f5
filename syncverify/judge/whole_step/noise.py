"""Rounding noise: how far a right step may be from the reference.

The order of additions on a mesh differs from that on one rank, and a mesh may round to lower dtypes.
A training can amplify so small a difference: AdamW divides a gradient by its own size, so the noise of
a gradient that is zero in exact arithmetic decides about a whole step of the parameter. So the
reference is played again with rounding noise. How far these plays are from the reference is what
rounding can do to this training.

Note [The bound of rounding]

A step rounds the result of each operator: it has r (1 + d) in the place of r, where abs(d) <= u and u is
the unit roundoff of the lowest dtype in use. A sum of n terms that is computed in any order is the exact
sum of terms x_i (1 + d_i), and so are products of matrices (Higham, Accuracy and Stability of Numerical
Algorithms, sections 3.1 and 4.2). So noise is in what an operator reads, and in what it returns. Noise in
the result alone is too small where terms cancel: the result is small, and its error is not.

To first order, a value is off by the sum of c_i d_i over all roundings; backward would give the c_i. If
the d_i are independent and have mean zero, Hoeffding's inequality gives, as in Higham and Mary, A New
Approach to Probabilistic Rounding Error Analysis (2019):

    P(abs(sum c_i d_i) > t) <= 2 exp(-t^2 / (2 u^2 sum c_i^2))

Nobody knows the c_i, but noise samples them. A play whose operators read and return values with
noise of [-K u, K u], each element by itself, is off by s, and s^2 has the mean K^2 u^2 / 3 times
a sum of squares that is at least that of the c_i: what is read is a result that was rounded. So
t = L s, where s is the root of the mean square of the plays, is exceeded with a probability of
2 exp(-L^2 K^2 / 6) at most. We take K = 2 and L = 5.7: 1e-9 for each element. A tensor has one
tolerance, that of its element with the largest s.

A value of one element has an s of few plays, and so s may be too small by chance. The slack is in
the bound: a rounding to nearest has a variance of u^2 / 6 or less, and noise is in what is read
and in what is returned. So L s is about 20 times the standard deviation of the rounding itself.

Plays come in pairs with opposite noise. To first order, both move a value by the same amount in
opposite directions. A value that depends on the sign of a gradient that is zero in exact
arithmetic, such as a step of AdamW with a small `eps`, jumps in one play of a pair if the noise is
larger than the rounding of the reference. It is larger in one of four pairs but for a chance below
1e-3 for each element, and one jump of eight plays is within the bound: L is more than the root of 8.

Not all roundings have mean zero. A parameter in bfloat16 to which too small an update is added
stays as it is in each step. Each such rounding is at most u, and a few steps of them are within
the factor of 20. Training steps are compared over a few steps, and not over thousands.

Float16 also has a smallest number: a result is off by up to half the distance of the smallest
numbers, and the noise has this part too, except in zeros. The optimizer has units of its own: with
mixed precision it computes in float32. A step in which a value of float16 overflows is skipped by
the scaler, and is skipped on one rank as well (`playing.py`).

In-place operators have noise in what they write, since an optimizer makes all of its results so.
Scalars in place are counters, and have none.

The reference of lower dtypes is computed in float64, from values that are rounded to the dtype of the
training. That of a training in float64, and a step without a loss, are in their own dtypes. Then both
sides are rounded, and the factor of 20 is one of 14.
"""

import itertools
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_map
from typing_extensions import override

from syncverify.judge.whole_step.rounding import (
    COLLECTIVES,
    IN_FLOAT64,
    Roundings,
    written_in_place,
)
from syncverify.trace.dispatch_modes import EagerMode

_ROUNDINGS: Final = 2.0  # size of the noise, in units of roundoff: K of the note
_PROBABILITY: Final = 1e-9
# L of the note.
NOISE_FACTOR: Final = math.sqrt(6 * math.log(2 / _PROBABILITY)) / _ROUNDINGS
_NUM_PAIRS: Final = 4


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one play."""

    seed: int
    sign: float  # 1, or -1 for the opposite noise
    roundings: Roundings

    @contextmanager
    def mode(self, step: int) -> Iterator[None]:
        """Run a step with noise."""
        noise = RoundingNoise(self.seed + step, self.sign, self.roundings)
        rank = threading.get_ident()

        def of_update(*_: object) -> None:
            if threading.get_ident() == rank:
                noise.rounding = noise.of_scalars = self.roundings.update

        hook = register_optimizer_step_pre_hook(of_update)
        try:
            with noise:
                yield
        finally:
            hook.remove()


def pairs_of_noises(roundings: Roundings) -> Sequence[Noise]:
    """Return the noise of each play: pairs with opposite noise."""
    pairs = itertools.product(range(_NUM_PAIRS), (1.0, -1.0))
    return [Noise(1000 * (1 + index), sign, roundings) for index, sign in pairs]


NOISES: Final = pairs_of_noises(IN_FLOAT64)


class RoundingNoise(EagerMode):
    """Change what operators read, return and write by random parts of a unit roundoff.

    `rounding` is that of values until it is set anew, `of_scalars` that of values with one element.
    """

    def __init__(self, seed: int, sign: float, roundings: Roundings) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self._sign = sign
        self.of_scalars = roundings.scalars
        self.rounding = roundings.step

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # A DTensor calls operators of its local tensors, and they come here too.
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented
        kwargs = kwargs or {}
        written = [*written_in_place(func, args, kwargs)]
        returns = func._schema.returns  # noqa: SLF001  # there is no public one
        shares = not written and any(each.alias_info for each in returns)
        if func.is_view or shares or _computes_no_values(func, types):
            return func(*args, **kwargs)
        if not written:
            args, kwargs = tree_map(self._noisy, (args, kwargs))
            return tree_map(self._noisy, func(*args, **kwargs))
        result = func(*args, **kwargs)
        for each in written:
            if each.dim() and each.is_floating_point():
                each.copy_(self._noisy(each))
        return result

    def _noisy(self, value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        rounding = self.of_scalars if value.numel() == 1 else self.rounding
        unit = max(torch.finfo(value.dtype).eps / 2, rounding.unit)
        changed = self._parts(value, unit).add_(1).mul_(value)
        if rounding.spacing:
            changed += self._parts(value, rounding.spacing).mul_(value != 0)
        return changed.to(value.dtype)

    def _parts(self, value: torch.Tensor, unit: float) -> torch.Tensor:
        """Return a random part of the noise for each element."""
        most = _ROUNDINGS * unit
        drawn = torch.empty(value.shape, dtype=torch.float64)
        return drawn.uniform_(-most, most, generator=self._generator).mul_(self._sign)


def _computes_no_values(func: Any, types: Any) -> bool:
    """Tell whether an operator is a collective, or has the empty tensors with which DTensor plans."""
    # Classes of such tensors dispatch operators themselves.
    own = torch.Tensor.__torch_dispatch__
    return func.namespace in COLLECTIVES or any(
        each.__torch_dispatch__ != own for each in types
    )
