"""Decode a wrong gradient: which contribution is missing, doubled, stale or misplaced.

Contributions are exact and distinct, so a wrong sum is a puzzle with an answer. Each
function below proposes explanations together with the value that each would produce;
the first whose value equals the observed one, element by element, is the cause. They
are tried from the simplest to the strangest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch

from syncverify import agenda
from syncverify.layout import axis_name, local_shape, ranks_along
from syncverify.owed import Owed

_NARROW_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MAX_SUBSET_SOURCE = 8  # subsets of more ranks or micro-batches are not enumerated


# Causes that say where, or how often, but not why: a scenario with fewer elements, or
# another one with the same defect, often shows a better one.
VAGUE_CAUSES = frozenset({"unexplained", "miscounted", "partly_wrong", "out_of_bound"})


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a gradient is wrong.

    Attributes:
        kind: Short name, stable across scenarios.
        text: A sentence that names ranks, micro-batches, steps, parameters.
    """

    kind: str
    text: str


Explanation = tuple[Cause, torch.Tensor]


def explain(
    owed: Owed, observed: torch.Tensor | None, *, only: str | None = None
) -> Cause | None:
    """Explain a gradient that differs from what is owed.

    Args:
        owed: What it should be.
        observed: What it is; None where the parameter has no gradient.
        only: Kind of explanation to look for; None means any.

    Returns:
        The cause, or None if the gradient is right or nothing of that kind explains it.
    """
    if observed is None:
        if owed.may_be_none():
            return None
        return Cause("gradient_missing", "there is no gradient at all")
    value = owed.value()
    if observed.shape != value.shape:
        return Cause(
            "wrong_shape", f"shape {tuple(observed.shape)}, not {tuple(value.shape)}"
        )
    dtype = str(observed.dtype).removeprefix("torch.")
    if dtype not in owed.dtypes():
        return Cause(
            "wrong_dtype", f"dtype {dtype}, not {owed.spec.effective_grad_dtype}"
        )
    exact = observed.to(torch.float64)
    if torch.equal(exact, value):
        return None
    if not torch.isfinite(exact).all():
        return Cause("not_finite", "it contains inf or nan")
    for cause, candidate in explanations(owed):
        if only in {None, cause.kind} and _equal(observed, candidate):
            return cause
    if only is not None:
        return None
    return (
        _scaled(owed, exact)
        or _rounded(owed, exact)
        or _partly_wrong(owed, observed)
        or _miscounted(owed, exact)
        or Cause("unexplained", "no known defect gives this value")
    )


def _equal(observed: torch.Tensor, candidate: torch.Tensor) -> bool:
    return torch.equal(observed, candidate.to(observed.dtype))


def explanations(owed: Owed) -> Iterator[Explanation]:
    """Yield causes, the simplest first, each with the gradient that it would lead to."""
    yield Cause("never_written", "it is all zeros"), torch.zeros_like(owed.value())
    # Over few elements, some of many candidates fit by chance: those with few come first.
    yield from _wrong_axes(owed)
    yield from _stale(owed)
    yield from _wrong_micro_batches(owed)
    yield from _known_factors(owed)
    yield from _misplaced(owed)
    yield from _wrong_ranks(owed)
    yield from _reduced_without_earlier(owed)
    yield from _one_contribution(owed)


def _wrong_axes(owed: Owed) -> Iterator[Explanation]:
    if len(owed.ranks) > 1:
        text = f"it is rank {owed.rank}'s own gradient: it was never reduced"
        for divisor in {owed.divisor, 1}:
            cause = Cause("rank_contribution_missing", text)
            yield cause, owed.part(owed.rank) / divisor
    mesh = owed.reference.scenario.mesh
    for count in range(len(mesh.shape) + 1):
        for axes in itertools.combinations(range(len(mesh.shape)), count):
            ranks = ranks_along(mesh, axes, owed.rank)
            if ranks != owed.ranks and set(ranks) <= set(owed.comparable()):
                yield _rank_cause(owed, ranks), owed.total(ranks) / owed.divisor


def _wrong_ranks(owed: Owed) -> Iterator[Explanation]:
    # A rank seldom forgets its own.
    subsets = sorted(_subsets(owed.comparable()), key=lambda s: owed.rank not in s)
    for ranks in subsets:
        if set(ranks) != set(owed.ranks):
            yield _rank_cause(owed, ranks), owed.total(ranks) / owed.divisor


def _rank_cause(owed: Owed, ranks: tuple[int, ...]) -> Cause:
    missing = sorted(set(owed.ranks) - set(ranks))
    foreign = sorted(set(ranks) - set(owed.ranks))
    words = []
    if missing:
        words.append(f"the contributions of {_ranks(missing)} are missing")
    if foreign:
        words.append(f"{_ranks(foreign)} must not contribute but did")
    mesh = owed.reference.scenario.mesh
    for count in range(len(mesh.shape) + 1):
        for axes in itertools.combinations(range(len(mesh.shape)), count):
            if ranks_along(mesh, axes, owed.rank) == tuple(sorted(ranks)):
                names = [axis_name(mesh, axis) for axis in axes]
                words.append(f"as if it were reduced over mesh axes {names} only")
                return Cause(_rank_kind(foreign), "; ".join(words))
    return Cause(_rank_kind(foreign), "; ".join(words))


def _rank_kind(foreign: list[int]) -> str:
    return "foreign_contribution" if foreign else "rank_contribution_missing"


def _wrong_micro_batches(owed: Owed) -> Iterator[Explanation]:
    for reduced in range(1, owed.count):
        early = torch.stack([owed.part(r, range(reduced)) for r in owed.ranks]).sum(
            dim=0
        )
        late = owed.part(owed.rank, range(reduced, owed.count))
        if len(owed.ranks) > 1:
            text = (
                f"it was reduced after {reduced} of {owed.count} micro-batches; "
                f"the later ones are rank {owed.rank}'s own"
            )
            yield Cause("reduced_early", text), early / owed.divisor + late
            yield Cause("reduced_early", text), (early + late) / owed.divisor
    yield from _reduced_every_time(owed)
    for chosen in _subsets(tuple(range(owed.count))):
        missing = sorted(set(range(owed.count)) - set(chosen))
        if missing:
            value = torch.stack([owed.part(r, chosen) for r in owed.ranks]).sum(dim=0)
            text = f"micro-batches {missing} of {owed.count} are missing on every rank"
            yield Cause("micro_batch_missing", text), value / owed.divisor


def _reduced_without_earlier(owed: Owed) -> Iterator[Explanation]:
    for first in range(1, owed.count):
        own = owed.part(owed.rank, range(first))
        later = range(first, owed.count)
        summed = torch.stack([owed.part(r, later) for r in owed.ranks]).sum(dim=0)
        text = (
            f"of the first {first} of {owed.count} micro-batches it has rank "
            f"{owed.rank}'s own only: the reduction had but the later ones"
        )
        for value in (own + summed / owed.divisor, (own + summed) / owed.divisor):
            yield Cause("rank_contribution_missing", text), value


def _reduced_every_time(owed: Owed) -> Iterator[Explanation]:
    if owed.count < 2 or len(owed.ranks) == 1:
        return
    sums = [
        torch.stack([owed.part(r, [m]) for r in owed.ranks]).sum(dim=0)
        for m in range(owed.count)
    ]
    value = sums[0]
    for later in sums[1:]:
        value = value * len(owed.ranks) + later
    text = "it was reduced after every micro-batch: what was summed is summed again"
    yield Cause("contribution_doubled", text), value / owed.divisor


def _one_contribution(owed: Owed) -> Iterator[Explanation]:
    total = owed.total(owed.ranks)
    for rank in owed.ranks:
        text = f"the contribution of rank {rank} is counted twice"
        yield (
            Cause("contribution_doubled", text),
            (total + owed.part(rank)) / owed.divisor,
        )
    for rank, m in itertools.product(owed.ranks, range(owed.count)):
        one, where = owed.part(rank, [m]), f"micro-batch {m} of rank {rank}"
        yield (
            Cause("micro_batch_missing", f"{where} is missing"),
            (total - one) / owed.divisor,
        )
        twice = Cause("contribution_doubled", f"{where} is counted twice")
        yield twice, (total + one) / owed.divisor
    for m in range(owed.count):
        more = torch.stack([owed.part(r, [m]) for r in owed.ranks]).sum(dim=0)
        text = f"micro-batch {m} is counted twice on every rank"
        yield Cause("contribution_doubled", text), (total + more) / owed.divisor


def _stale(owed: Owed) -> Iterator[Explanation]:
    value, again = owed.value(), len(owed.ranks) / owed.divisor
    for before in reversed(range(owed.step)):
        count = agenda.num_backwards(owed.reference.scenario, before)
        reduced = owed.reference.reduced(owed.spec, owed.rank, before)
        local = owed.reference.local(owed.spec, owed.rank, before, range(count))
        for old, words in ((reduced, "reduced gradient"), (local, "own gradient")):
            text = f"the {words} of step {before}"
            yield Cause("stale", f"it is {text}"), old
            yield Cause("stale", f"it still contains {text}"), value + old
            yield Cause("stale", f"it is {text}, reduced again"), old * again
            yield Cause("stale", f"it still contains {text}"), value + old * again
    yield from _never_cleared(owed)


def _never_cleared(owed: Owed) -> Iterator[Explanation]:
    """Sum up what one step after the other has left behind."""
    oracle, spec, last = owed.reference, owed.spec, owed.step - 1
    reduced = own = owed.value()
    for first in reversed(range(owed.step)):
        count = agenda.num_backwards(oracle.scenario, first)
        reduced = reduced + oracle.reduced(spec, owed.rank, first)
        own = own + oracle.local(spec, owed.rank, first, range(count))
        for sum_of_all, words in ((reduced, "reduced"), (own, "own")):
            text = f"it still contains the {words} gradients of steps {first} to {last}"
            if first < last:
                yield Cause("stale", text), sum_of_all


def _known_factors(owed: Owed) -> Iterator[Explanation]:
    value = owed.value()
    sizes = {
        "the number of ranks that contribute": len(owed.ranks),
        "the number of accumulations": max(1, owed.count),
        "the world size": owed.reference.scenario.mesh.num_ranks,
        "the number of elements": max(1, value.numel()),
    }
    for axis, size in enumerate(owed.reference.scenario.mesh.shape):
        sizes[
            f"the size of mesh axis {axis_name(owed.reference.scenario.mesh, axis)!r}"
        ] = size
    for words, size in sizes.items():
        yield Cause("scaled", f"it is divided by {size}, {words}"), value / size
        yield Cause("scaled", f"it is multiplied by {size}, {words}"), value * size
        if owed.count > 1:
            text = f"it is divided by {size}, {words}, in every micro-batch"
            parts = [
                owed.part(r, [m]) / size ** (owed.count - m)
                for r in owed.ranks
                for m in range(owed.count)
            ]
            yield Cause("scaled", text), torch.stack(parts).sum(dim=0)
    yield Cause("scaled", "it is counted twice as a whole"), value * 2


def _misplaced(owed: Owed) -> Iterator[Explanation]:
    scenario, shape = owed.reference.scenario, owed.value().shape
    for other in scenario.parameters:
        if other.name == owed.spec.name or not other.requires_grad:
            continue
        elsewhere = Owed(
            owed.reference,
            other,
            owed.rank,
            owed.step,
            owed.count,
            owed.ranks,
            owed.divisor,
        )
        donors = [
            rank
            for rank in owed.ranks
            if torch.Size(local_shape(scenario.mesh, other, rank)).numel()
            == shape.numel()
        ]
        for swapped in _subsets(tuple(donors)):
            kept = [rank for rank in owed.ranks if rank not in swapped]
            parts = [owed.part(rank) for rank in kept]
            parts += [elsewhere.part(rank).reshape(shape) for rank in swapped]
            text = f"on {_ranks(swapped)} the value belongs to parameter {other.name!r}"
            yield Cause("misplaced", text), torch.stack(parts).sum(dim=0) / owed.divisor


def _scaled(owed: Owed, observed: torch.Tensor) -> Cause | None:
    """Find a common factor; elements of one magnitude would fit any."""
    value = owed.value()
    if len(value.abs().unique()) < 2:  # as the docstring says
        return None
    ratio = (observed / value).reshape(-1)
    if not torch.equal(ratio, ratio[:1].expand_as(ratio)):
        return None
    factor = Fraction(ratio[0].item()).limit_denominator(1000)
    return Cause("scaled", f"every element is multiplied by {factor}")


def _rounded(owed: Owed, observed: torch.Tensor) -> Cause | None:
    """Find narrower dtypes in which summing so many contributions errs so much."""
    own = torch.finfo(getattr(torch, owed.spec.effective_grad_dtype))
    num_terms = len(owed.ranks) * owed.count
    if not num_terms:
        return None
    # Contributions to an element share their sign, so this bounds the sum's error too.
    error = ((observed - owed.value()) / owed.value()).abs().max().item()
    finfos = [torch.finfo(dtype) for dtype in _NARROW_DTYPES]
    names = [
        info.dtype
        for info in finfos
        if info.eps > own.eps and error <= num_terms * info.eps / 2
    ]
    if not names:
        return None
    return Cause("rounded", f"it is rounded, as if summed in {' or '.join(names)}")


def _partly_wrong(owed: Owed, observed: torch.Tensor) -> Cause | None:
    value = owed.value().reshape(-1)
    wrong = (observed.to(torch.float64).reshape(-1) != value).nonzero().reshape(-1)
    if len(wrong) == len(value):
        return None
    first, last = int(wrong[0]), int(wrong[-1])
    flat = observed.reshape(-1)[wrong]
    own = owed.part(owed.rank).reshape(-1)[wrong]
    holds = "wrong values"
    if torch.equal(flat, own.to(flat.dtype)):
        holds = f"rank {owed.rank}'s own, unreduced gradient"
    elif not flat.any():
        holds = "zeros"
    text = f"elements {first}..{last} of {len(value)} (flattened) hold {holds}"
    return Cause("partly_wrong", text)


def _miscounted(owed: Owed, observed: torch.Tensor) -> Cause | None:
    """Solve for how often each (rank, micro-batch) of this step was counted."""
    keys = list(itertools.product(owed.comparable(), range(owed.count)))
    if not keys:
        return None
    columns = torch.stack(
        [owed.part(r, [m]).reshape(-1) / owed.divisor for r, m in keys], dim=1
    )
    if columns.shape[0] < columns.shape[1]:
        return None
    weights = torch.linalg.lstsq(columns, observed.reshape(-1, 1)).solution.round()
    if not torch.equal((columns @ weights).reshape(observed.shape), observed):
        return None
    owed_weights = [1 if rank in owed.ranks else 0 for rank, _ in keys]
    wrong = [
        f"micro-batch {m} of rank {rank} counted {int(w)} times instead of {o}"
        for (rank, m), w, o in zip(keys, weights.reshape(-1), owed_weights, strict=True)
        if int(w) != o
    ]
    return Cause("miscounted", "; ".join(wrong))


def _subsets(items: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the non-empty subsets, largest first: few things go wrong at once."""
    if len(items) > _MAX_SUBSET_SOURCE:
        return
    for size in range(len(items), 0, -1):
        yield from itertools.combinations(items, size)


def _ranks(ranks: Iterable[int]) -> str:
    listed = list(ranks)
    return f"rank{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"
