"""The dtypes of a training on a mesh, and how they round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode,
    _pop_mode,
    _push_mode,
)
from torch.utils._pytree import tree_iter
from typing_extensions import override

from syncverify.trace.dispatch_modes import HarnessMode, without_dispatch_modes
from syncverify.whole_step.noise import COLLECTIVES
from syncverify.whole_step.values import Quantity, RankValues
from syncverify.whole_step.written import written_in_place

_FULL: Final = torch.finfo(torch.float64).eps
_NO_SPACING: Final = 1e-40
# Values that the optimizer reads and writes.
_OF_UPDATES: Final = (Quantity.STEPPED, Quantity.STATE, Quantity.PARAMETER)


@dataclass(frozen=True, slots=True)
class Rounding:
    """How values of some dtypes are rounded.

    Attributes:
        unit: Unit roundoff: largest difference of a rounded value, as a part of it.
        spacing: Half the distance between the smallest numbers; 0 for a distance below 1e-40, as
            in float32.
    """

    unit: float
    spacing: float

    @classmethod
    def of(cls, dtypes: Iterable[torch.dtype]) -> Rounding:
        """Return the rounding of the lowest of some dtypes."""
        infos = [torch.finfo(each) for each in dtypes]
        unit = max((each.eps for each in infos), default=_FULL) / 2
        spacing = max((each.smallest_normal * each.eps for each in infos), default=0.0)
        return cls(unit, spacing / 2 if spacing > _NO_SPACING else 0.0)


@dataclass(frozen=True, slots=True)
class Roundings:
    """The dtypes below float64 of a training.

    Attributes:
        dtypes: The dtypes of forward, backward and communication, and of the optimizer.
        step: Rounding of forward, backward and communication.
        update: Rounding of the optimizer.
    """

    dtypes: frozenset[torch.dtype]
    step: Rounding
    update: Rounding

    @property
    def is_low(self) -> bool:
        """Tell whether a dtype is below float32."""
        return any(_is_lower(each, torch.float32) for each in self.dtypes)


def dtype_names(dtypes: Iterable[torch.dtype]) -> str:
    """Return the names of dtypes, such as `bfloat16 and float32`."""
    return " and ".join(sorted(str(each).removeprefix("torch.") for each in dtypes))


def roundings_of(dtype: torch.dtype, ranks: Sequence[RankValues]) -> Roundings | None:
    """Return how a training on a mesh rounds; None if all of it is in float64.

    Args:
        dtype: Dtype of model and batch.
        ranks: Values of each rank.
    """
    updates = {*_dtypes_of_updates(ranks)}
    step = {dtype, *updates, *(each for rank in ranks for each in rank.lowered)}
    if step == {torch.float64}:
        return None
    lower = frozenset(step - {torch.float64})
    return Roundings(lower, Rounding.of(step), Rounding.of(updates))


def _dtypes_of_updates(ranks: Sequence[RankValues]) -> Iterator[torch.dtype]:
    for rank in ranks:
        for step in rank.steps:
            for quantity in _OF_UPDATES:
                for value in step.tensors.get(quantity, {}).values():
                    if value is not None and _rounds(value):
                        yield value.dtype


def _rounds(value: object) -> bool:
    """Tell whether a value is a tensor that rounding matters for: counters have one element."""
    if not isinstance(value, torch.Tensor):
        return False
    return value.is_floating_point() and value.numel() > 1


class LoweredDtypes(HarnessMode):
    """Note the dtypes to which a rank rounds tensors of a higher dtype.

    A mask in float32 that a bool was made of has no rounding, and is not noted.

    Attributes:
        found: The dtypes.
        has_overflowed: Whether an operator returned infinity or NaN in float16.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self.found = set[torch.dtype]()
        self.has_overflowed = False

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch wraps every call, and nothing here is compiled

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note the operators of this thread within a block."""
        # torch's own `with` keeps flags for the whole process, which ranks would mix up.
        _push_mode(self)
        try:
            yield
        finally:
            if _get_current_dispatch_mode() is self:
                _pop_mode()

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not func.is_view:
            written = (*written_in_place(func, args, kwargs), *tree_iter(result))
            rounded = [each for each in written if _rounds(each)]
            self._note((args, kwargs), {each.dtype for each in rounded})
            # A collective may still run, and each of its inputs was seen before.
            if func.namespace not in COLLECTIVES:
                self.has_overflowed |= any(map(_overflows, rounded))
        return result

    def _note(self, arguments: Any, written: set[torch.dtype]) -> None:
        low = {each for each in written - self.found if _is_lower(each, torch.float64)}
        if low:
            read = [each.dtype for each in tree_iter(arguments) if _rounds(each)]
            self.found |= {
                each for each in low if any(_is_lower(each, r) for r in read)
            }


def _overflows(value: torch.Tensor) -> bool:
    if value.dtype is not torch.float16:
        return False
    part = value.to_local() if isinstance(value, DTensor) else value
    with without_dispatch_modes():  # the program does not read it
        # Minus infinity comes from masks.
        return bool(((part == math.inf) | part.isnan()).any())


def _is_lower(one: torch.dtype, two: torch.dtype) -> bool:
    return torch.finfo(one).eps > torch.finfo(two).eps
