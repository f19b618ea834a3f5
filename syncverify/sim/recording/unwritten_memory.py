"""Memory that was allocated and not written, and the reads of it that matter.

Note [A sign in fresh memory]
    A read of such memory does no harm if nothing comes of it: flat buckets have padding, and a
    collective reduces it. So fresh floating-point memory holds a NaN with bits of its own, the
    *sign*. Arithmetic, casts and collectives hand it on, as they do with any NaN. Memory is read
    before it was written where two things meet:

    - an operator or a collective read bytes that nothing had written, which gives the lines;
    - the sign comes to light: in a number that the host reads, in a gradient that the optimizer
      reads, in a value of a training step, or in a result of the program.

    A result that has the sign in some elements alone may be such a bucket with its padding, so
    it counts only where some operator computed something of unwritten bytes alone. A NaN of the program's
    own lacks the sign. Writes that no operator shows, such as those through a NumPy view,
    overwrite the sign. So no right program is accused.

    Not seen: integers, which have no NaN; results of arithmetic in bfloat16, which leaves
    nothing of the sign; memory over 64 MiB, which would cost time; memory of the host.

Source:
    IEEE 754-2019, 6.2.3, NaN propagation: an operation on a NaN should keep its payload.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import torch

from syncverify.sim.device.torch_internals import local_part
from syncverify.sim.recording.storages import Storage
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import NoLine
from syncverify.trace.stacks import RawFrames

_MAX_BYTES: Final = 2**26
_MAX_RUNS: Final = 1024
# The bits after those that any quiet NaN has; each dtype holds at least six of them.
_PAYLOAD: Final = 0b101101
_PAYLOAD_BITS: Final = 6
# By dtype: its integers of the same width, and the number of bits in its fraction.
_BITS: Final[dict[torch.dtype, tuple[torch.dtype, int]]] = {
    torch.float64: (torch.int64, 52),
    torch.float32: (torch.int32, 23),
    torch.float16: (torch.int16, 10),
    torch.bfloat16: (torch.int16, 7),
}
Line = RawFrames | NoLine


_Runs = list[tuple[int, int]]  # of bytes (start, end), in order


class UnwrittenUse(NamedTuple):
    """A use of bytes that nothing had written."""

    operator: str  # or collective, which read them
    made_at: Line
    line: Line
    hands_on: bool  # the operator wrote other memory, or made some
    # The operator also read such bytes alone: it computed something of them.
    is_plain: bool


@dataclass(slots=True)
class UnwrittenMemory:
    """The fresh memory of one rank, and the uses of it so far by their lines."""

    # By number of the storage, with the runs of bytes that nothing has written.
    fresh: dict[int, tuple[Storage, _Runs]] = field(default_factory=dict)
    uses: dict[tuple[Line, Line], UnwrittenUse] = field(default_factory=dict)

    def allocate(self, tensors: object, storages: Iterable[Storage]) -> None:
        """Put the sign into new tensors, and note their storages."""
        listed = tensors if isinstance(tensors, (tuple, list)) else (tensors,)
        if all(map(_sign, listed)):
            for storage in storages:
                self.fresh[storage.number] = storage, [(0, storage.num_bytes)]

    def use(
        self,
        operator: str,
        reads: Iterable[MemoryRegion],
        writes: Iterable[MemoryRegion],
        line: Callable[[], Line],
    ) -> None:
        """Note the bytes that an operator or a collective reads, then those that it writes."""
        writes = [*writes]
        for region in reads:
            if region.storage not in self.fresh:
                continue
            storage, unwritten = self.fresh[region.storage]
            runs = _runs(region)
            written = _without(runs, unwritten)
            if written != runs:
                hands_on = any(each.storage != region.storage for each in writes)
                lines = storage.made_at, line()
                is_plain = hands_on and not written
                use = UnwrittenUse(operator, *lines, hands_on, is_plain)
                self.uses.setdefault(lines, use)
        for region in writes:
            if region.storage in self.fresh:
                storage, unwritten = self.fresh.pop(region.storage)
                if left := _without(unwritten, _runs(region)):
                    self.fresh[region.storage] = storage, left

    def came_to_light(
        self, values: Iterable[object], *, may_be_padding: bool = False
    ) -> UnwrittenUse | None:
        """Return the use of unwritten bytes that shows in some tensors and numbers, if one does."""
        if not self.uses:
            return None
        # An operator without a schema of its writes, such as FSDP2's copy into the buffer of an
        # all-gather, seems to read what it writes.
        use = max(self.uses.values(), key=lambda one: (one.is_plain, one.hands_on))
        is_bucket = may_be_padding and not use.is_plain
        has_sign = any(_has_sign(value, everywhere=is_bucket) for value in values)
        return use if has_sign else None


def _sign(tensor: object) -> bool:
    """Fill a tensor with the sign; tell whether that was possible."""
    tensor = local_part(tensor)
    if not isinstance(tensor, torch.Tensor) or tensor.dtype not in _BITS:
        return False
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    if not 0 < tensor.numel() * tensor.itemsize <= _MAX_BYTES:
        return False
    integers, fraction = _BITS[tensor.dtype]
    tensor.detach().view(integers).fill_(_pattern(tensor.itemsize * 8, fraction))
    return True


def _pattern(width: int, fraction: int) -> int:
    """Return the bits of the sign in a dtype of some width."""
    exponent = (1 << (width - 1 - fraction)) - 1
    quiet_and_payload = (1 << _PAYLOAD_BITS) | _PAYLOAD
    return (exponent << fraction) | (
        quiet_and_payload << (fraction - 1 - _PAYLOAD_BITS)
    )


def _has_sign(value: object, *, everywhere: bool) -> bool:
    """Tell whether some elements have the sign, or all of them."""
    if isinstance(value, float):
        if not math.isnan(value):
            return False
        value = torch.tensor(value, dtype=torch.float64)
    if not isinstance(value, torch.Tensor) or value.dtype not in _BITS:
        return False
    integers, fraction = _BITS[value.dtype]
    shift = fraction - 1 - _PAYLOAD_BITS
    # Without the bit for minus, which negation turns round.
    mask = (1 << (value.itemsize * 8 - 1 - shift)) - 1
    expected = _pattern(value.itemsize * 8, fraction) >> shift
    found = (value.detach().view(integers).long() >> shift & mask) == expected
    return bool(found.all() if everywhere else found.any())


def _runs(region: MemoryRegion) -> _Runs:
    """Return the runs of a region, or one run that covers many."""
    num_runs = math.prod(count for count, _ in region.repeats)
    if 1 < num_runs <= _MAX_RUNS:
        return region.runs()
    return [(region.start_byte, region.end_byte)]


def _without(runs: _Runs, taken: _Runs) -> _Runs:
    """Return the bytes of some sorted runs that no other run has."""
    for start, end in taken:
        runs = [
            part
            for first, last in runs
            for part in ((first, min(last, start)), (max(first, end), last))
            if part[0] < part[1]
        ]
    return runs
