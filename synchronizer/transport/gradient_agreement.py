"""The comparison of gradients across ranks, by checksums.

Note [Checksums of gradients]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
One number of 64 bits stands for a gradient. The output function of SplitMix64 (Steele,
Lea and Flood, "Fast splittable pseudorandom number generators", 2014) mixes the bit
pattern of each element with its position. All results are added modulo 2**64. The
function is one to one, so two gradients that differ in a single element never have the
same checksum; other pairs have the same one with a probability of about 2**-64.

Two simpler functions do not work:

    * `torch.hash_tensor` ignores the order, and two equal elements cancel each other.
    * A sum with weights: the bit patterns of small integers end in zeros, and a product
      keeps all of them.

The computation needs two integers of 64 bits for each element of the parameter.

Zero has two bit patterns. The order of a sum decides which of them a sum of zeros has.
So 0 is added to each element first, which makes every zero the positive one.
"""

from collections import Counter
from typing import Any

import torch
import torch.distributed as dist

from syncverify.synchronizer.contract.errors import GradientDisagreementError
from syncverify.synchronizer.plan.grouping import BucketPlan
from syncverify.synchronizer.ranks.scope import rank_list

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# The constants of SplitMix64 as int64: its stride, and each shift with its factor.
_STRIDE = 0x9E3779B97F4A7C15 - 2**64
_ROUNDS = (
    (30, 0xBF58476D1CE4E5B9 - 2**64),
    (27, 0x94D049BB133111EB - 2**64),
    (31, 1),
)


class GradientAgreementCheck:
    """Compares the gradients of one bucket on the ranks of the checked axes."""

    def __init__(self, plan: BucketPlan, group: dist.ProcessGroup) -> None:
        assert plan.check_scope is not None, "there are ranks to compare with"
        self._plan = plan
        self._ranks = plan.check_scope.ranks
        self._group = group
        # The checksums of this rank, and those of all ranks, one row each. The references
        # keep the memory until `finish`, because the exchange uses it.
        self._mine: torch.Tensor | None = None
        self._checksums: torch.Tensor | None = None
        self._work: Any = None

    def start(self, buffer: torch.Tensor) -> None:
        """Exchange checksums of a buffer, after the work of the current stream.

        Work that is queued after this call may overwrite the buffer.
        """
        members = zip(self._plan.members, self._plan.offsets_numel, strict=True)
        self._mine = torch.stack(
            [checksum(buffer[start : start + m.local_numel]) for m, start in members]
        )
        self._checksums = self._mine.new_empty(len(self._ranks), len(self._mine))
        rows = list(self._checksums.unbind())
        self._work = dist.all_gather(rows, self._mine, group=self._group, async_op=True)

    def finish(self) -> None:
        """Order the current stream after the exchange; on CPU wait until it is done."""
        work, self._work = self._work, None
        if work is not None:
            work.wait()
        self._mine = None

    def refuse_disagreement(self, label: str) -> None:
        """Wait for the device and compare, once for each exchange."""
        checksums, self._checksums = self._checksums, None
        if checksums is None:
            return
        rows = checksums.tolist()
        for member, found in zip(
            self._plan.members, zip(*rows, strict=True), strict=True
        ):
            if len(set(found)) > 1:
                raise self._disagreement(member.name, found, label)

    def _disagreement(
        self, name: str, found: tuple[int, ...], label: str
    ) -> GradientDisagreementError:
        """Name the ranks that differ from the majority, or from the first rank."""
        ((common, _),) = Counter(found).most_common(1)
        # The group gathers in the order of its own ranks.
        group_ranks = dist.get_process_group_ranks(self._group)
        by_rank = dict(zip(group_ranks, found, strict=True))
        others = sorted(rank for rank, value in by_rank.items() if value != common)
        same = sorted(by_rank.keys() - set(others))
        return GradientDisagreementError(
            f"ranks disagree about the gradient of {name}",
            expected=f"the same on ranks {rank_list(self._ranks)}, which are checked",
            got=f"another one on rank {rank_list(others)} than on rank {rank_list(same)}",
            where=label,
        )


def checksum(gradient: torch.Tensor) -> torch.Tensor:
    """Return the checksum of a gradient of shape (N,): int64, without dims."""
    real = torch.view_as_real(gradient) if gradient.is_complex() else gradient
    bits = (real + 0.0).view(_INTEGERS[real.itemsize]).flatten().to(torch.int64)
    positions = torch.arange(1, len(bits) + 1, device=bits.device)
    return _mix(positions.mul_(_STRIDE).add_(bits)).sum()


def _mix(values: torch.Tensor) -> torch.Tensor:
    """Map integers one to one, in place; products wrap around on purpose."""
    for shift, factor in _ROUNDS:
        # torch's shift repeats the sign bit; SplitMix64 shifts in zeros.
        values ^= (values >> shift) & (2 ** (64 - shift) - 1)
        values *= factor
    return values
