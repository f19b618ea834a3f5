"""Compare a whole training step on any mesh with one rank: the way in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.simulation.playing import Device
from syncverify.whole_step.comparing import compare
from syncverify.whole_step.layout import Layout
from syncverify.whole_step.outcome import Comparison, FoundMistake, LayoutPlay
from syncverify.whole_step.playing import reference_of
from syncverify.whole_step.shrinking import shrunk
from syncverify.whole_step.text import text_of
from syncverify.whole_step.training import Function, Own, Split, Training, adamw


class StepIsWrongError(AssertionError):
    """A training differs from one rank; the text is its report."""


@dataclass(frozen=True, slots=True)
class Parity(Comparison):
    """A training beside one rank; `str()` gives the report."""

    @override
    def __str__(self) -> str:
        return text_of(self)

    def check(self) -> None:
        """Do nothing if all layouts are right.

        Raises:
            StepIsWrongError: One is not, or was not played.
        """
        if not self.is_right:
            raise StepIsWrongError(str(self))


def parity(
    build: Function,
    parallelize: Function,
    batch: Function,
    loss: Function | None = None,
    *,
    layouts: Sequence[Mapping[str, int] | str],
    step: Function | None = None,
    optimizer: Function = adamw,
    clip: float | None = None,
    scaler: Function | None = None,
    split: Split | None = None,
    own: Own | None = None,
    steps: int = 2,
    micro_batches: Iterable[int] = (1,),
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    device: Device = "cuda",
) -> Parity:
    """Train a model on simulated meshes, and compare each step with that of one rank.

    Functions name the values that they take; `Training` lists them.

    Args:
        build: Makes the model.
        parallelize: Puts a `model` on a `mesh`.
        batch: Makes the batch of one step, for all ranks.
        loss: Takes `model` and `batch`, and returns the loss.
        layouts: Axes and sizes of the meshes, such as `{"dp": 2, "tp": 2}` or `"dp=2,tp=2"`.
        step: Makes one whole step; None takes torch's own.
        optimizer: Makes the optimizer of `parameters`, or of the `model`.
        clip: Largest norm; None clips nothing.
        scaler: Makes the scaler of the loss; None scales nothing.
        split: Axes over which the rows of the batch are split; None takes those whose names
            start with `dp`.
        own: Axes over which ordinary tensors are split.
        steps: Number of steps.
        micro_batches: Numbers of parts of each rank's batch; each is played.
        dtype: Floating-point dtype of model and batch.
        seed: Seed of model and data.
        device: Device that torch names to the program.

    Returns:
        All that differs, with the mistake behind it.

    Raises:
        UsageError: An argument is wrong, or the training does not run on one rank.
    """
    if loss is None and step is None:
        raise UsageError("expected a loss, a step, or both")
    training = Training(
        build=build,
        parallelize=parallelize,
        batch=batch,
        loss=loss,
        step=step,
        clip=clip,
        scaler=scaler,
        split=split,
        own={} if own is None else own,
        num_steps=steps,
        dtype=dtype,
        seed=seed,
        optimizer=optimizer,
    )
    return compare_layouts(training, _layouts(layouts), [*micro_batches], device)


def compare_layouts(
    training: Training,
    layouts: Sequence[Layout],
    numbers: Sequence[int],
    device: Device,
    path: str = "",
) -> Parity:
    """Compare each layout with one rank, and find the smallest training of each mistake."""
    plays, mistakes = list[LayoutPlay](), dict[Any, FoundMistake]()
    for number in numbers:
        setup = replace(training, num_micro_batches=number)
        reference = None
        for layout in layouts:
            if reference is None or training.loss is None:
                reference = reference_of(setup, layout, device)
            played = compare(setup, layout, reference, device)
            plays.append(played)
            _note(mistakes, setup, played, device)
    name = getattr(training.build, "__module__", "")
    found = tuple(mistakes.values())
    return Parity(
        path or name, path, tuple(plays), found, training.num_steps, training.seed
    )


def _note(
    mistakes: dict[Any, FoundMistake],
    setup: Training,
    played: LayoutPlay,
    device: Device,
) -> None:
    for finding in played.findings:
        if (known := mistakes.get(finding.key)) is not None:
            layouts = dict.fromkeys([*known.layouts, played.layout])
            mistakes[finding.key] = replace(known, layouts=tuple(layouts))
            continue
        best = shrunk(setup, played, finding, device)
        mistakes[finding.key] = FoundMistake(
            best.finding,
            best.played.layout,
            best.training.num_micro_batches,
            tuple(best.training.sizes.items()),
            best.training.num_rows,
            (played.layout,),
        )


def _layouts(layouts: Sequence[Mapping[str, int] | str]) -> list[Layout]:
    made = [
        Layout.parse(each) if isinstance(each, str) else Layout.of(each)
        for each in layouts
    ]
    if not made:
        raise UsageError("expected at least one layout")
    return made
