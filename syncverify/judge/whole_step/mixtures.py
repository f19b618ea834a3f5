"""Wrong gradients that are sums of right ones: of parts, over a wrong group, of other parameters."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import torch

from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.factors import (
    RELATIVE,
    axes_with,
    axis_sets,
    common_factor,
    factor_of,
    rounded_weight,
    simplest,
)
from syncverify.judge.whole_step.mesh_play import Known
from syncverify.judge.whole_step.parts import pieces
from syncverify.trace.source_lines import lines_among

_ELEMENTS_IN_LOWER_DTYPES: Final = 4
Column = Mapping[str, torch.Tensor]  # a part of a sum: gradients by name
Explained = tuple[causes.StepMistake, list[ComparedValue]]


def mixtures(found: Sequence[ComparedValue], known: Known) -> Iterator[Explained]:
    """Yield weights of parts of the batch, or of terms, with the gradients that they explain."""
    for ratios, first, explained in _ratios(found, [*known.terms.values()], known):
        factors = tuple(zip(known.terms, ratios, strict=True))
        axes, is_parts = axes_with(known.layout, first), known.is_number_of_parts(first)
        yield causes.TermsWeighted(factors, axes, is_parts), explained
    yield from _uses(found, known)
    yield from _micro_batches(found, known)
    parts = usable(known.parts)
    num_empty = len(known.parts) - len(parts)
    for wrong, right, explained in _solved(found, parts, known, 1 if num_empty else 2):
        ratios = [rounded_weight(float(each)) for each in wrong / right]
        # Parts without tokens count in a mean of means, and nowhere else.
        are_equal = _are_equal(wrong) and (bool(num_empty) or not _are_equal(right))
        if {*ratios} != {1.0}:
            yield causes.Weighted(tuple(ratios), are_equal), explained
    if len(parts) > 1 and not are_few(found, len(parts)):
        own, exact = _weights(found, parts, known)
        if own is not None and exact is None:
            yield causes.OwnParts(), [e for e in found if _fits(e, parts, own, known)]


def _uses(found: Sequence[ComparedValue], known: Known) -> Iterator[Explained]:
    """Yield by which factors the uses of parameters count, of those with as many uses together."""
    uses = {each: known.uses.get(each.name, ()) for each in found}
    for number in sorted({*map(len, uses.values())}):
        used = [each for each in found if len(uses[each]) == number]
        columns = [{e.name: uses[e][i].part for e in used} for i in range(number)]
        for ratios, first, explained in _ratios(used, columns, known):
            pairs = zip(ratios, uses[explained[0]], strict=True)
            lines = lines_among(u.line for ratio, u in pairs if ratio != 1 and u.line)
            axes = axes_with(known.layout, first)
            yield causes.UsesWeighted(tuple(ratios), axes, lines), explained


def _micro_batches(found: Sequence[ComparedValue], known: Known) -> Iterator[Explained]:
    """Yield by which factors micro-batches count, where these are the same on all ranks."""
    columns, number = known.micro_batches, known.play.num_micro_batches
    if len(usable(columns)) < len(columns):
        return
    for ratios, _, explained in _ratios(found, columns, known):
        factors = ratios[:number]
        by_rank = torch.tensor(ratios).view(-1, number)
        is_same = torch.allclose(by_rank, by_rank[:1], rtol=RELATIVE, atol=RELATIVE)
        if is_same and len({*factors}) > 1:
            yield causes.MicroBatchesWeighted(tuple(factors)), explained


def are_few(found: Sequence[ComparedValue], num_weights: int) -> bool:
    """Tell whether so many weights would fit any gradients: as many numbers, or rounded ones."""
    elements = sum(next(iter(each.expected.values())).numel() for each in found)
    is_rounded = any(each.slack for each in found)
    return elements <= num_weights * (_ELEMENTS_IN_LOWER_DTYPES if is_rounded else 1)


def usable(parts: Sequence[Column]) -> list[Column]:
    """Return the gradients of parts of the batch that are finite, and not all zero."""
    return [
        each
        for each in parts
        if all(bool(value.isfinite().all()) for value in each.values())
        if any(bool(value.any()) for value in each.values())
    ]


def _ratios(
    found: Sequence[ComparedValue], columns: Sequence[Column], known: Known
) -> Iterator[tuple[list[float], float, list[ComparedValue]]]:
    """Yield wrong weights divided by right ones, the first that is not 1, and what they explain."""
    for wrong, right, explained in _solved(found, columns, known):
        ratios = [rounded_weight(float(each)) for each in wrong / right]
        if {*ratios} != {1.0}:
            yield ratios, next(each for each in ratios if each != 1), explained


def _solved(
    found: Sequence[ComparedValue],
    columns: Sequence[Column],
    known: Known,
    fewest: int = 2,
) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[ComparedValue]]]:
    """Yield wrong weights, right ones, and the gradients that the wrong ones explain.

    Weights are those of all gradients together, or else of each one.
    """
    if len(columns) < fewest:
        return
    for subset in ([*found], *([each] for each in found)):
        if are_few(subset, len(columns)):
            continue
        wrong, right = _weights(subset, columns, known)
        if wrong is None or right is None or not bool(right.all()):
            continue
        if slack := max(each.slack for each in subset):
            wrong = right * _simplest(wrong / right, subset, columns, slack)
        explained = [each for each in found if _fits(each, columns, wrong, known)]
        yield wrong, right, explained
        if len(subset) == len(found):
            return


def _simplest(
    ratios: torch.Tensor,
    found: Sequence[ComparedValue],
    columns: Sequence[Column],
    slack: float,
) -> torch.Tensor:
    """Return the simplest ratios that rounding allows; 0 for one that rounding alone may give."""
    sizes = [
        max(float(c[e.name].abs().max()) for e in found if e.name in c) for c in columns
    ]
    slacks = [slack / size if size else 0.0 for size in sizes]
    pairs = zip(ratios.tolist(), slacks, strict=True)
    return torch.tensor(
        [0.0 if abs(ratio) <= each else simplest(ratio, each) for ratio, each in pairs],
        dtype=ratios.dtype,
    )


def _weights(
    found: Sequence[ComparedValue], columns: Sequence[Column], known: Known
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the weights with which columns add up to the gradients on all wrong ranks.

    The first ones give the wrong gradients, the others the right ones; None if no weights, or
    several ones, do.
    """
    system = _system(found, columns, known)
    if system is None:
        return None, None
    basis, wrong, right = system
    # Right gradients are those of one rank, which rounding of lower dtypes does not change.
    slack = max(each.slack for each in found)
    return _solution(basis, wrong, slack), _solution(basis, right, 0.0)


def _solution(
    basis: torch.Tensor, target: torch.Tensor, slack: float
) -> torch.Tensor | None:
    largest = float(basis.abs().max())
    smallest = RELATIVE + (slack / largest if largest else 0.0)
    is_finite = bool(target.isfinite().all())
    if not is_finite or torch.linalg.matrix_rank(basis, rtol=smallest) < basis.shape[1]:
        return None
    weights: torch.Tensor = torch.linalg.lstsq(basis, target).solution
    return weights if _is_sum(basis, weights, target, slack) else None


def _fits(
    found: ComparedValue, columns: Sequence[Column], weights: torch.Tensor, known: Known
) -> bool:
    system = _system([found], columns, known)
    return system is not None and _is_sum(system[0], weights, system[1], found.slack)


def _is_sum(
    basis: torch.Tensor, weights: torch.Tensor, target: torch.Tensor, slack: float
) -> bool:
    error = (basis @ weights - target).abs().max()
    return bool(error <= RELATIVE * basis.abs().max() + slack)


def _system(
    found: Sequence[ComparedValue], columns: Sequence[Column], known: Known
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Return the elements of each column on the wrong ranks, and of wrong and right gradients."""
    rows = list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]()
    for each in found:
        for rank in each.wrong_ranks:
            got = each.got[rank]
            if got is None or not any(each.name in column for column in columns):
                return None
            pieces = [piece_of(c.get(each.name), each, rank, known) for c in columns]
            basis = torch.stack([piece.double().flatten() for piece in pieces], dim=1)
            right = each.expected[rank].double().flatten()
            rows.append((basis, got.double().flatten(), right))
    basis, wrong, right = map(torch.cat, zip(*rows, strict=True))
    return basis, wrong, right


def piece_of(
    value: torch.Tensor | None, found: ComparedValue, rank: int, known: Known
) -> torch.Tensor:
    """Return a rank's part of a whole value; zeros where there is none."""
    if value is None:
        return torch.zeros_like(found.expected[rank])
    layout, own, got = known.layout, known.play.own, {rank: found.got[rank]}
    return pieces(found.name, value, got, layout=layout, own=own)[rank]


def _are_equal(weights: torch.Tensor) -> bool:
    first = weights[0].expand_as(weights)
    return torch.allclose(weights, first, rtol=RELATIVE, atol=RELATIVE)


def wrong_group(found: ComparedValue, known: Known) -> causes.StepMistake | None:
    """Return the axes over which a shard was reduced, if wrong axes give its values.

    An expert's gradient on a rank has the tokens of some ranks before it is reduced: those that
    send tokens to it. So we also try which axes the gradient has summed already.
    """
    parts = usable(known.parts)
    if not found.is_judged:
        return None  # rounding hides a factor of 2
    if len(parts) < 2 or len(parts) < len(known.parts):
        return None
    _, weights = _weights([found], parts, known)
    if weights is None or any(found.name not in each for each in parts):
        return None
    contributions = [parts[i][found.name] * weights[i] for i in known.part_of]
    sets, split_axes = [*axis_sets(known.layout)], known.split_axes
    for summed in (frozenset[str](), *(each for each in sets if each <= split_axes)):
        right = split_axes - summed
        own = dict[int, torch.Tensor]()  # each rank's gradient before its reduction
        for rank in found.got:
            whole = sum_of(contributions[i] for i in known.layout.group(rank, summed))
            own[rank] = piece_of(whole, found, rank, known)
        for axes in (each for each in sets if each != right):
            factor = _factor_of_sum(found, known, own, axes)
            if factor is not None:
                return causes.ReducedOver(axes, right, factor)
    return None


def sum_of(values: Iterable[torch.Tensor | None]) -> torch.Tensor | None:
    """Return the sum of tensors of one shape; None where there is none."""
    present = [each for each in values if each is not None]
    if not present or any(each.shape != present[0].shape for each in present):
        return None
    return torch.stack(present).sum(0)


def _factor_of_sum(
    found: ComparedValue,
    known: Known,
    own: Mapping[int, torch.Tensor],
    axes: frozenset[str],
) -> float | None:
    """Return the factor by which all ranks have the sum over a group; None for none."""
    groups = {rank: known.layout.group(rank, axes) for rank in found.got}
    if any(rank not in own for group in groups.values() for rank in group):
        return None  # other ranks leave the parameter to its owner
    sums = {rank: sum_of(own[each] for each in groups[rank]) for rank in groups}
    factors = [
        factor_of(value, sums[rank], slack_of_base=found.slack)
        for rank, value in found.got.items()
    ]
    return common_factor(factors, RELATIVE + found.relative_slack)


def mixed_up(found: Sequence[ComparedValue], known: Known) -> Iterator[Explained]:
    """Yield that gradients are at wrong parameters, with all gradients that this explains.

    A parameter whose gradient another one has may be left with zeros.
    """
    slacks = {each.name: each.slack for each in found}
    sums = {each: _sum_with_another(each, slacks, known) for each in found}
    moved = {name for listed in sums.values() for name, _ in listed}
    explained = [e for e in found if sums[e] or (e.name in moved and e.is_zero)]
    if explained:
        yield causes.MixedUp(tuple((e.name, sums[e]) for e in explained)), explained


def _sum_with_another(
    found: ComparedValue, slacks: Mapping[str, float], known: Known
) -> causes.SumOfRight:
    """Return the right gradients of which one is another parameter's; none if several fit."""
    own = known.whole.get(found.name)
    first_names = known.play.reference.values.first_names
    fitting = [
        (*([(found.name, kept)] if kept else []), (name, factor))
        for name, right in known.whole.items()
        if own is not None and right is not None and right.shape == own.shape
        if first_names.get(name, name) == name != found.name
        for kept in (0.0, 1.0)
        if (factor := _factor(found, name, kept, slacks.get(name, found.slack), known))
        if factor == 1 or axes_with(known.layout, factor)
    ]
    return fitting[0] if len(fitting) == 1 and not are_few([found], 2) else ()


def _factor(
    found: ComparedValue, name: str, kept: float, slack: float, known: Known
) -> float | None:
    """Return the factor of another gradient beside the own one on all wrong ranks; None for none.

    The slack is that of the other one. A multiple of the own gradient tells nothing.
    """
    factors = list[float | None]()
    for rank in found.wrong_ranks:
        got, own = found.got[rank], found.expected[rank]
        other = piece_of(known.whole[name], found, rank, known)
        if got is None or got.shape != own.shape:
            return None
        factor = factor_of(got - kept * own, other, kept * found.slack, slack)
        if factor is None or factor_of(other, own, slack, found.slack) is not None:
            return None
        factors.append(factor)
    return common_factor(factors, RELATIVE + found.relative_slack)
