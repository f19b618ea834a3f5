"""The dtypes of a training on a mesh, and how they round."""

import functools
import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeGuard

import torch
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode,
    _pop_mode,
    _push_mode,
)
from torch.utils._pytree import tree_iter
from typing_extensions import override

from syncverify.judge.whole_step.shards import local_part
from syncverify.judge.whole_step.values import Quantity, RankValues
from syncverify.trace.dispatch_modes import (
    EagerMode,
    HarnessMode,
    without_dispatch_modes,
)

_FULL: Final = torch.finfo(torch.float64).eps
_NO_SPACING: Final = 1e-40
# Values that the optimizer reads and writes.
_OF_UPDATES: Final = (Quantity.STEPPED, Quantity.STATE, Quantity.PARAMETER)
# Collectives do not round on one rank, and each is waited for by the tensor that it returned.
COLLECTIVES: Final = ("c10d", "_c10d_functional")


@dataclass(frozen=True, slots=True)
class Rounding:
    """How values of some dtypes are rounded."""

    unit: float  # unit roundoff: largest difference of a rounded value, as a part of it
    # Half the distance between the smallest numbers; 0 for a distance below 1e-40, as in float32.
    spacing: float

    @classmethod
    def of(cls, dtypes: Iterable[torch.dtype]) -> Self:
        """Return the rounding of the lowest of some dtypes."""
        infos = [torch.finfo(each) for each in dtypes]
        unit = max((each.eps for each in infos), default=_FULL) / 2
        spacing = max((each.smallest_normal * each.eps for each in infos), default=0.0)
        return cls(unit, spacing / 2 if spacing > _NO_SPACING else 0.0)


@dataclass(frozen=True, slots=True)
class Roundings:
    """The dtypes below float64 of a training."""

    # Dtypes of forward, backward and communication, and of the optimizer.
    dtypes: frozenset[torch.dtype]
    step: Rounding  # of forward, backward and communication
    update: Rounding  # of the optimizer
    # Dtypes of scalars alone, such as a norm that `item()` reads.
    scalar_dtypes: frozenset[torch.dtype]
    scalars: Rounding

    @property
    def names(self) -> str:
        """The names of all dtypes."""
        return dtype_names(self.dtypes | self.scalar_dtypes)

    @property
    def is_low(self) -> bool:
        """Tell whether a dtype of tensors is below float32."""
        return any(_is_lower(each, torch.float32) for each in self.dtypes)


_FLOAT64: Final = Rounding.of(())
IN_FLOAT64: Final = Roundings(frozenset(), _FLOAT64, _FLOAT64, frozenset(), _FLOAT64)


def dtype_names(dtypes: Iterable[torch.dtype]) -> str:
    """Return the names of dtypes, such as `bfloat16 and float32`."""
    return " and ".join(sorted(str(each).removeprefix("torch.") for each in dtypes))


def roundings_of(dtype: torch.dtype, ranks: Sequence[RankValues]) -> Roundings | None:
    """Return how a training on a mesh rounds; None if all of it is in float64.

    The dtype is that of model and batch.
    """
    updates = {
        value.dtype
        for rank in ranks
        for value in rank.shown_tensors(_OF_UPDATES)
        # Rounding does not matter for counters, which have one element.
        if _is_real(value) and not _is_scalar(value)
    }
    step = {dtype, *updates, *(each for rank in ranks for each in rank.lowered)}
    # Scalars that were rounded, and those that a step returns.
    returned = (e for rank in ranks for e in rank.shown_tensors([Quantity.RETURNED]))
    scalars = {each.dtype for each in returned if each.is_floating_point()}
    scalars = scalars.union(*(rank.lowered_scalars for rank in ranks))
    if step | scalars == {torch.float64}:
        return None
    lower = frozenset(step - {torch.float64})
    lowest = max(torch.finfo(each).eps for each in step)
    return Roundings(
        lower,
        Rounding.of(step),
        Rounding.of(updates),
        frozenset(each for each in scalars if torch.finfo(each).eps > lowest),
        Rounding.of(step | scalars),
    )


def _is_real(value: object) -> TypeGuard[torch.Tensor]:
    """Tell whether a value is a floating-point tensor with elements."""
    if not isinstance(value, torch.Tensor):
        return False
    return value.is_floating_point() and value.numel() > 0


def _is_scalar(value: torch.Tensor) -> bool:
    return value.numel() == 1 and value.is_floating_point()


class LoweredDtypes(EagerMode, HarnessMode):
    """Note the dtypes to which a rank rounds tensors of a higher dtype.

    A mask in float32 that a bool was made of has no rounding, and is not noted. Scalars are noted
    apart: a norm in float32 says nothing of the tensors. The host reads counters of optimizers in
    float32, and they are exact.
    """

    def __init__(self, optimizers: Iterable[Any] = ()) -> None:
        super().__init__()
        self.found = set[torch.dtype]()
        # Whether an operator returned infinity or NaN in float16.
        self.has_overflowed = False
        self._optimizers = optimizers
        self._scalars = set[torch.dtype]()
        # Weak, since memory of the program has to go back to its pool.
        self._read = list[tuple[weakref.ref[torch.Tensor], torch.dtype]]()

    @property
    def scalars(self) -> frozenset[torch.dtype]:
        """The dtypes below float64 in which the host read a scalar, or to which one was rounded."""
        counters = [
            value
            for optimizer in self._optimizers
            for state in getattr(optimizer, "state", {}).values()
            if isinstance(state, dict)
            for value in state.values()
        ]
        known = {id(each) for each in counters}
        read = (dtype for tensor, dtype in self._read if id(tensor()) not in known)
        return frozenset(self._scalars.union(read))

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
        if func is torch.ops.aten._local_scalar_dense.default:  # noqa: SLF001  # of `item()`
            scalar = args[0]
            if _is_scalar(scalar) and _is_lower(scalar.dtype, torch.float64):
                self._read.append((weakref.ref(scalar), scalar.dtype))
        elif not func.is_view:
            listed = (*written_in_place(func, args, kwargs), *tree_iter(result))
            written = [each for each in listed if _is_real(each)]
            self._note([e for e in tree_iter((args, kwargs)) if _is_real(e)], written)
            # A collective may still run, and each of its inputs was seen before.
            if func.namespace not in COLLECTIVES:
                tensors = (each for each in written if not _is_scalar(each))
                self.has_overflowed |= any(map(_overflows, tensors))
        return result

    def _note(
        self, read: Sequence[torch.Tensor], written: Sequence[torch.Tensor]
    ) -> None:
        """Note what is rounded, and a scalar that a tensor of a higher dtype is made of."""
        tensors = {each.dtype for each in read if not _is_scalar(each)}
        are_scalars = {each.dtype: _is_scalar(each) for each in read}
        scalars = {dtype for dtype, is_one in are_scalars.items() if is_one}
        for each in written:
            self._scalars |= {d for d in scalars if _is_lower(d, each.dtype)}
            is_one = _is_scalar(each)
            others = are_scalars.keys() if is_one else tensors
            if any(_is_lower(each.dtype, dtype) for dtype in others):
                (self._scalars if is_one else self.found).add(each.dtype)


def _overflows(value: torch.Tensor) -> bool:
    if value.dtype is not torch.float16:
        return False
    part = local_part(value)
    with without_dispatch_modes():  # the program does not read it
        # Minus infinity comes from masks.
        return bool(((part == math.inf) | part.isnan()).any())


def _is_lower(one: torch.dtype, two: torch.dtype) -> bool:
    return torch.finfo(one).eps > torch.finfo(two).eps


def written_in_place(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[torch.Tensor]:
    """Yield the tensors that an operator was given, and writes."""
    for index, name in _places(func):
        value = args[index] if index < len(args) else kwargs.get(name)
        for each in tree_iter(value):
            if isinstance(each, torch.Tensor):
                yield each


@functools.cache
def _places(func: Any) -> tuple[tuple[int, str], ...]:
    """Return index and name of each argument that an operator writes."""
    listed = enumerate(func._schema.arguments)  # noqa: SLF001  # there is no public one
    return tuple(
        (index, each.name)
        for index, each in listed
        if each.alias_info is not None and each.alias_info.is_write
    )
