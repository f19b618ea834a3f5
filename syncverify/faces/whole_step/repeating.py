"""The same training again: a training that differs from itself cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from syncverify.errors import UsageError
from syncverify.faces.simulation.program import Device
from syncverify.faces.whole_step.outcome import LayoutPlay
from syncverify.faces.whole_step.playing import play_on
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.values import NamedTensors, RankValues


def check_same_again(training: Training, played: LayoutPlay, device: Device) -> None:
    """Play a layout with a mistake again: other random numbers could explain it.

    Raises:
        UsageError: Values differ from those of the first play, or a rank does not end.
    """
    again = play_on(training, played.layout, device, finds_races=False)
    if (where := _first_difference(played.simulation.results, again.results)) is None:
        return
    raise UsageError(
        f"two plays of layout {played.layout} with the same seed differ (first: {where}), so "
        "they cannot be compared with one rank; draw random numbers from torch's default "
        "generator, or seed yours inside of parallelize() or step()"
    )


def _first_difference(
    ranks: Sequence[RankValues], others: Sequence[RankValues | None]
) -> str | None:
    for rank, (ours, theirs) in enumerate(zip(ranks, others, strict=False)):
        if theirs is None:
            return f"the end of rank {rank}"
        for (name, one), two in zip(_named(ours), _of(theirs), strict=False):
            if not _is_same(one, two):
                return f"{name} on rank {rank}"
    return None


def _of(values: RankValues) -> Iterator[torch.Tensor | None]:
    return (value for _, value in _named(values))


def _named(values: RankValues) -> Iterator[tuple[str, torch.Tensor | None]]:
    yield from _words("parameter before the first step", values.start)
    for index, step in enumerate(values.steps, start=1):
        for quantity, tensors in step.tensors.items():
            yield from _words(f"step {index}, {quantity.value}", tensors)


def _words(
    kind: str, tensors: NamedTensors
) -> Iterator[tuple[str, torch.Tensor | None]]:
    return ((f"{kind} {name}", value) for name, value in tensors.items())


def _is_same(one: torch.Tensor | None, two: torch.Tensor | None) -> bool:
    if one is None or two is None:
        return one is two
    if one.shape != two.shape:
        return False
    same = torch.allclose(one, two, rtol=0.0, atol=0.0, equal_nan=True)
    return same
