"""Right elements at a wrong place: an offset into a flat buffer that is not the parameter's own.

Note [Elements found elsewhere]
    Gradients of a rank often lie in one buffer. A wrong offset puts elements of one parameter,
    or of another part of the same one, into a gradient, and Inf where none belongs. So elements
    that are wrong are looked up among all right elements of the rank. One number may be found
    there by chance: with k numbers to find, and n different fractions in a dtype, each lookup
    succeeds by chance with at most k/n. The chance that all do has to be small. Inf and NaN
    prove nothing, for an overflow may spread. Elements of the same gradient in another order
    are no wrong offset: those are strides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from syncverify.judge.cause import Cause
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.reference import RightElement

_MAX_CHANCE: Final = 0.001
# One number after the other is looked up: more take minutes.
_MAX_NUMEL: Final = 2**17
_NAN: Final = "nan"  # which equals itself


def displaced(
    expected: ExpectedGradient, observed: torch.Tensor, *, is_proof: bool = True
) -> Cause | None:
    """Find all wrong elements among the right ones of the rank; zeros may be padding.

    Args:
        expected: The right gradient.
        observed: The wrong gradient; shape of the local part.
        is_proof: Whether a finite element of another parameter has to be found, and more than
            by chance.

    Returns:
        The cause, with the place of the first wrong element that was found, or None; always
        None for a huge gradient.
    """
    if observed.numel() > _MAX_NUMEL:
        return None
    flat = [_key(each) for each in observed.reshape(-1).tolist()]
    value = [_key(e) for e in expected.value().to(observed.dtype).reshape(-1).tolist()]
    places = _places(expected, observed.dtype)
    wrong = [
        i
        for i, (seen, right) in enumerate(zip(flat, value, strict=True))
        if seen != right
    ]
    found = {index: places[flat[index]] for index in wrong if flat[index] in places}
    if not found or any(flat[index] and index not in found for index in wrong):
        return None
    telling = [
        index
        for index, place in found.items()
        if observed.reshape(-1)[index].isfinite()
        and place.parameter != expected.spec.name
    ]
    chance = min(1.0, len(places) * torch.finfo(observed.dtype).eps / 2)
    if is_proof and (not telling or chance ** len(telling) > _MAX_CHANCE):
        return None
    first, others = (telling or [*found])[0], len(wrong) - 1
    more = f", and {others} more are not in their places either" if others else ""
    text = f"its element {first} has the value of {_words(found[first])}{more}"
    return Cause("misplaced", text)


def _words(place: RightElement) -> str:
    return f"element {place.number} of {place.parameter!r}"


def _key(number: float) -> float | str:
    return number if number == number else _NAN  # only NaN differs


def _places(
    expected: ExpectedGradient, dtype: torch.dtype
) -> dict[float | str, RightElement]:
    """Return a place by the value that belongs there; zeros are everywhere."""
    count = expected.count if expected.ranks == (expected.rank,) else None
    moment = expected.rank, expected.step, count, dtype
    known = expected.reference.owners
    if moment in known:
        return known[moment]
    places = known[moment] = dict[float | str, RightElement]()
    for name, value in _right_gradients(expected):
        for index, number in enumerate(value.to(dtype).reshape(-1).tolist()):
            if number:
                places.setdefault(_key(number), RightElement(index, name))
    return places


def _right_gradients(
    expected: ExpectedGradient,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the right gradients of the rank at this moment; of a local one, both forms."""
    oracle, rank, step = expected.reference, expected.rank, expected.step
    for spec in oracle.scenario.trainable:
        if expected.ranks == (rank,):
            yield spec.name, oracle.local(spec, rank, step, range(expected.count))
        yield spec.name, oracle.reduced(spec, rank, step)
