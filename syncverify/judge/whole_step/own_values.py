"""The values that each rank should have by its own earlier values.

One mistake makes all later values wrong. A later value that is right for what the rank has made
before is a consequence. A value that is not is a mistake of its own.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from syncverify.judge.whole_step.differences import ComparedValue, size_of
from syncverify.judge.whole_step.mesh_play import MeshPlay
from syncverify.judge.whole_step.norm_causes import coefficient_of
from syncverify.judge.whole_step.values import Quantity, parameter_of


def by_own_values(
    play: MeshPlay, wrong: list[ComparedValue], factors: Mapping[str, float]
) -> list[ComparedValue]:
    """Return the values of one quantity and step that a rank's own earlier values do not explain.

    Their `expected` has what these give. An earlier step may have multiplied gradients by factors, by name.
    """
    match wrong[0].quantity if wrong else None:
        case Quantity.GRADIENT:
            found = _gradients(play, wrong, factors)
        case Quantity.NORM:
            found = _norms(play, wrong)
        case Quantity.STEPPED:
            found = _stepped(play, wrong)
        case Quantity.SKIPPED:
            found = _decisions(play, wrong)
        case Quantity.STATE | Quantity.PARAMETER:
            found = _optimized(play, wrong)
        case _:
            return []
    return [each for each in found if each.wrong_ranks]


def _gradients(
    play: MeshPlay, wrong: list[ComparedValue], factors: Mapping[str, float]
) -> Iterator[ComparedValue]:
    """Compare with the gradients on one rank from the ranks' own parameters."""
    step = wrong[0].step
    start = play.own_start(step) if step and play.has_loss else None
    if start is None:
        return
    plain = play.gradients_of([], step, start).whole
    for each in wrong:
        if each.name in plain:
            gradient = plain[each.name] * factors.get(each.name, 1.0)
            yield _expecting(each, dict.fromkeys(each.got, gradient))


def _norms(play: MeshPlay, wrong: list[ComparedValue]) -> Iterator[ComparedValue]:
    """Compare with the norm of the ranks' own gradients, of any copy that ranks have."""
    squares = play.squares(wrong[0].step)
    own = squares.own_parts([*squares.split_over], frozenset())
    norms = torch.tensor(own, dtype=torch.float64).sqrt()
    for each in wrong:
        expected = dict[int, torch.Tensor]()
        for rank, value in each.got.items():
            off = (norms - (norms[rank] if value is None else value)).abs()
            expected[rank] = norms[off.nan_to_num(torch.inf, torch.inf).argmin()]
        yield _expecting(each, expected)


def _stepped(play: MeshPlay, wrong: list[ComparedValue]) -> Iterator[ComparedValue]:
    """Compare with the rank's own gradients, clipped by its own norm."""
    step = wrong[0].step
    if play.clip is not None and not play.clip_is_seen(step):
        return
    norms = play.by_rank(Quantity.NORM, step, "norm")
    for each in wrong:
        before = play.by_rank(Quantity.GRADIENT, step, each.name)
        expected = {
            rank: clipped
            for rank, value in each.got.items()
            if (clipped := _clipped(value, before[rank], norms[rank], play)) is not None
        }
        if {*expected} == {*each.got}:
            yield _expecting(each, expected)


def _clipped(
    value: torch.Tensor | None,
    gradient: torch.Tensor | None,
    norm: torch.Tensor | None,
    play: MeshPlay,
) -> torch.Tensor | None:
    """Return a rank's gradient, clipped by a norm, and unscaled if only then it is right."""
    clip = play.clip
    if value is None or gradient is None or value.shape != gradient.shape:
        return gradient
    factor = 1.0 if clip is None or norm is None else coefficient_of(float(norm), clip)
    clipped = gradient * factor
    unscaled = clipped / play.scale
    return min(clipped, unscaled, key=lambda each: float((each - value).abs().max()))


def _decisions(play: MeshPlay, wrong: list[ComparedValue]) -> Iterator[ComparedValue]:
    """Compare with one rank where all ranks have gradients that are finite."""
    steps = [each.steps[wrong[0].step] for each in play.ranks]
    tensors = [e for step in steps for e in step.tensors[Quantity.GRADIENT].values()]
    if all(each is None or bool(each.isfinite().all()) for each in tensors):
        yield from wrong


def _optimized(play: MeshPlay, wrong: list[ComparedValue]) -> Iterator[ComparedValue]:
    """Compare with the values that the optimizer makes of the rank's own gradients."""
    if not play.has_loss:
        return
    made = [play.optimized(each) for each in play.ranks]
    for each in wrong:
        expected = {
            rank: value
            for rank in each.got
            if (value := made[rank][each.step][each.quantity].get(each.name))
            is not None
        }
        name = parameter_of(each.name)
        if any(name in rank.steps[each.step].read_elsewhere for rank in play.ranks):
            continue  # the optimizer may have read other gradients
        if {*expected} == {*each.got}:
            if each.quantity is Quantity.PARAMETER:
                expected = _sent(play, each, expected)
            yield _expecting(each, expected)


def _sent(
    play: MeshPlay, found: ComparedValue, made: Mapping[int, torch.Tensor]
) -> dict[int, torch.Tensor]:
    """Return what ranks should have: without a gradient, a rank may have the owner's value."""
    read = play.by_rank(Quantity.STEPPED, found.step, found.name)
    sent = dict[int, torch.Tensor]()
    for rank, own in made.items():
        copies = [
            each
            for other, each in made.items()
            if read[rank] is None
            if torch.equal(found.expected[other], found.expected[rank])
        ]
        distance = functools.partial(_distance, found.got[rank])
        sent[rank] = min([own, *copies], key=distance)
    return sent


def _distance(value: torch.Tensor | None, other: torch.Tensor) -> float:
    if value is None or value.shape != other.shape:
        return math.inf
    return size_of(value - other)


def _expecting(
    found: ComparedValue, expected: dict[int, torch.Tensor]
) -> ComparedValue:
    """Return a value with other right values; its tolerance grows with their size."""
    sizes = [size_of(each) for each in found.expected.values()]
    own = [size_of(each) for each in expected.values()]
    factor = max([1.0, *(b / a for a, b in zip(sizes, own, strict=True) if a)])
    tolerance = found.tolerance * factor
    return replace(found, expected=expected, tolerance=tolerance, is_by_own=True)
