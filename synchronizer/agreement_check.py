"""Whether ranks hold the same gradients: checksums of a bucket, compared across ranks.

Note [Checksums of gradients]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
One number of 64 bits stands for a gradient. The bit pattern of each element is mixed with
its position by the output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", 2014), and all of them are added modulo 2**64. That function
is one to one, so two gradients that differ in a single element never have the same checksum;
others with a probability of about 2**-64. `torch.hash_tensor` would not do: it is blind to
order, and two equal elements cancel each other. Nor would a sum with weights: the patterns
of small integers end in zeros, of which a product keeps all.

Until a checksum is there, it takes two integers of 64 bits for each element of its parameter.

Zeros have two bit patterns, and which one comes out of a sum of zeros depends on how it was
split; so 0 is added first, which makes each of them the positive one.
"""

from collections import Counter
from typing import Any

import torch
import torch.distributed as dist

from .errors import GradientDisagreementError
from .grouping import BucketPlan
from .process_groups import ReductionGroups

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# The constants of SplitMix64, as int64: its stride, and shifts with what comes after each.
_STRIDE = 0x9E3779B97F4A7C15 - 2**64
_ROUNDS = (
    (30, 0xBF58476D1CE4E5B9 - 2**64),
    (27, 0x94D049BB133111EB - 2**64),
    (31, 1),
)


class AgreementCheck:
    """Compares one bucket's gradients on the ranks of the axes that are checked.

    Args:
        plan: Of the bucket; it has ranks to compare with.
        group: Those ranks.
    """

    def __init__(self, plan: BucketPlan, group: dist.ProcessGroup) -> None:
        assert plan.check is not None, "there are ranks to compare with"
        self._plan = plan
        self._ranks = plan.check.ranks
        self._group = group
        # What is sent and what comes, one row a rank; until `finish`, nobody else may be
        # given this memory.
        self._mine: torch.Tensor | None = None
        self._checksums: torch.Tensor | None = None
        self._work: Any = None

    def start(self, buffer: torch.Tensor) -> None:
        """Exchange checksums of what a buffer holds, after what the current stream holds.

        Args:
            buffer: Shape (N,); may be overwritten by what is queued after this call.
        """
        members = zip(self._plan.members, self._plan.offsets_numel, strict=True)
        self._mine = torch.stack(
            [checksum(buffer[start : start + m.local_numel]) for m, start in members]
        )
        self._checksums = self._mine.new_empty(len(self._ranks), len(self._mine))
        rows = list(self._checksums.unbind())
        self._work = dist.all_gather(rows, self._mine, group=self._group, async_op=True)

    def finish(self) -> None:
        """Order the current stream after the exchange; on CPU block until it is done."""
        work, self._work = self._work, None
        if work is not None:
            work.wait()
        self._mine = None

    def refuse_disagreement(self, label: str) -> None:
        """Wait for the device and compare, once for each exchange.

        Args:
            label: Of the bucket.

        Raises:
            GradientDisagreementError: Some rank holds another gradient.
        """
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
        """Name the ranks that are not with the most, or else not with the first."""
        ((common, _),) = Counter(found).most_common(1)
        by_rank = dict(zip(self._process_group_ranks(), found, strict=True))
        others = sorted(rank for rank, value in by_rank.items() if value != common)
        same = sorted(by_rank.keys() - set(others))
        return GradientDisagreementError(
            f"ranks disagree about the gradient of {name}",
            expected=f"the same on ranks {_listed(list(self._ranks))}, which are checked",
            got=f"another one on rank {_listed(others)} than on rank {_listed(same)}",
            where=label,
        )

    def _process_group_ranks(self) -> list[int]:
        """List global ranks in the order in which the group gathers."""
        return dist.get_process_group_ranks(self._group)


def choose_check(plan: BucketPlan, groups: ReductionGroups) -> AgreementCheck | None:
    """Choose how to compare a bucket.

    Args:
        plan: Of the bucket.
        groups: Where to find its process groups.

    Returns:
        None where nothing is compared.
    """
    return AgreementCheck(plan, groups.get(plan.check)) if plan.check else None


def checksum(gradient: torch.Tensor) -> torch.Tensor:
    """Add up what a gradient holds, see Note [Checksums of gradients].

    Args:
        gradient: Shape (N,), floating point or complex.

    Returns:
        int64, without dims.
    """
    real = torch.view_as_real(gradient) if gradient.is_complex() else gradient
    bits = (real + 0.0).view(_INTEGERS[real.itemsize]).flatten().to(torch.int64)
    positions = torch.arange(1, len(bits) + 1, device=bits.device)
    return _mix(positions.mul_(_STRIDE).add_(bits)).sum()


def _mix(values: torch.Tensor) -> torch.Tensor:
    """Exchange integers in place, one to one; products wrap around, which is meant."""
    for shift, factor in _ROUNDS:
        # torch's shift repeats the sign; this one has to shift in zeros.
        values ^= (values >> shift) & (2 ** (64 - shift) - 1)
        values *= factor
    return values


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
