"""Plays of a training: on one rank, and on a mesh, both on the simulated machine."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeVar

import torch

from syncverify.calling import takes
from syncverify.errors import UsageError
from syncverify.faces.simulation.program import Device
from syncverify.faces.simulation.simulate import simulate, simulate_for_values
from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step.data import NotFinite
from syncverify.faces.whole_step.gathered_late import gathered_late
from syncverify.faces.whole_step.input_checks import (
    check_same_on_ranks,
    check_training,
    digests_of,
)
from syncverify.faces.whole_step.steps import (
    optimizer_steps,
    plain_gradients,
    train_on_mesh,
    train_plainly,
)
from syncverify.faces.whole_step.training import Beside, Training
from syncverify.faces.whole_step.value_checks import check_draws
from syncverify.faces.whole_step.watching import watched_clipping
from syncverify.judge.evidence import Ended
from syncverify.judge.whole_step.differences import OneRank
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.lower_noise import LowerNoise, pairs_of_noises
from syncverify.judge.whole_step.mesh_play import MeshPlay
from syncverify.judge.whole_step.noise import PAIR_OF_NOISES, NoiseOfSteps
from syncverify.judge.whole_step.one_rank import as_one_rank
from syncverify.judge.whole_step.rounding import Roundings
from syncverify.judge.whole_step.shards import fill
from syncverify.judge.whole_step.values import RankValues
from syncverify.plain_text import in_one_line

_T = TypeVar("_T")
# The reference of a training in these dtypes is computed in float64 where it can be.
_LOW: Final = (torch.bfloat16, torch.float16)
# torch says there how to make a redistribution faster, also of one that only reads values.
_ADVICE: Final = logging.getLogger("torch.distributed.tensor._redistribute")
_SCHEDULE_FIRST: Final = r"Detected call of `lr_scheduler.step\(\)` before"


@contextmanager
def watched() -> Iterator[None]:
    """Let steps be watched within a block, and torch give no advice on speed."""
    level = _ADVICE.level
    _ADVICE.setLevel(logging.ERROR)
    try:
        with watched_clipping():
            yield
    finally:
        _ADVICE.setLevel(level)


@contextmanager
def _schedule_may_come_first(training: Training) -> Iterator[None]:
    """Keep torch from a warning where the data skip the step before a schedule."""
    with warnings.catch_warnings():
        if isinstance(training.variation, NotFinite):
            warnings.filterwarnings("ignore", message=_SCHEDULE_FIRST)
        yield


@contextmanager
def one_thread_of_torch() -> Iterator[None]:
    """Let operators use one thread of the CPU within a block.

    Ranks take turns, and their tensors are small. torch's other threads would spin between two
    operators, for as much CPU time as all plays take.
    """
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(number)


def check(
    training: Training,
    layouts: Sequence[Layout],
    numbers: Sequence[int],
    device: Device,
) -> None:
    """Check a training on one rank, and its model on all, before a step is played.

    Raises:
        UsageError: It cannot be played.
    """
    _alone(lambda: check_training(training, layouts, numbers), device)
    num_ranks = max(layout.num_ranks for layout in layouts)
    with watched():
        built = simulate_for_values(
            lambda: digests_of(training.model()), num_ranks, device
        )
    # A build that ends on one rank alone is reported as the training of a layout.
    made = {rank: each for rank, each in enumerate(built.results) if each is not None}
    check_same_on_ranks(made)


def play_on(
    training: Training,
    layout: Layout,
    device: Device,
    noise: NoiseOfSteps | None = None,
    *,
    finds_races: bool = True,
) -> Simulation:
    """Play a training on a mesh.

    Args:
        training: Model, data, loss and parallelism that the user describes.
        layout: Names and sizes of the mesh axes.
        device: Device that torch names to the program.
        noise: Rounding noise; None for none.
        finds_races: Whether races are looked for, or values are all that is needed.

    Returns:
        The play, with `RankValues` as results.
    """
    run = simulate if finds_races else simulate_for_values

    def program() -> RankValues:
        return train_on_mesh(training, layout, device, noise)

    program.__module__, program.__qualname__ = "", f"training on {layout}"
    with watched(), _schedule_may_come_first(training):
        simulation = run(program, layout.num_ranks, device=device)
    ranks = [each for each in simulation.results if isinstance(each, RankValues)]
    if len(ranks) == layout.num_ranks:
        fill([each.kept for each in ranks])
    return simulation


def reference_of(
    training: Training,
    layout: Layout,
    device: Device,
    noises: Sequence[NoiseOfSteps] = PAIR_OF_NOISES,
) -> OneRank:
    """Play a training on one rank: plainly where it has a loss, or else its own step.

    Args:
        training: Model, data, loss and parallelism that the user describes.
        layout: The layout whose axes, each of one rank, an own step gets where `beside` of the
            training names no other layout.
        device: Device that torch names to it.
        noises: Rounding noise of each further play.

    Returns:
        The values; plays with rounding noise are made once they are needed.

    Raises:
        UsageError: It does not end, or depends on random numbers that its steps draw.
    """
    if training.loss is None:
        number = training.num_micro_batches
        beside = training.beside or Beside(layout.of_ones(), number)
        return _own_reference(training, beside, device, noises)
    if training.dtype in _LOW:
        precise = _in_float64(training, device)
        _check_draws(
            precise.values, training, lambda other: _in_float64(other, device).values
        )
        return precise
    plain = _alone(lambda: train_plainly(training), device)
    _check_draws(
        plain, training, lambda other: _alone(lambda: train_plainly(other), device)
    )

    @functools.cache
    def noisy() -> list[RankValues]:
        plays = (functools.partial(train_plainly, training, each) for each in noises)
        return [_alone(play, device) for play in plays]

    return OneRank(plain, noisy)


def _own_reference(
    training: Training, beside: Beside, device: Device, noises: Sequence[NoiseOfSteps]
) -> OneRank:
    """Make the own step on the layout that others are compared with."""
    setup = replace(training, num_micro_batches=beside.num_micro_batches)
    values = _own_values(setup, beside.layout, device, None)
    _check_draws(
        values, setup, lambda other: _own_values(other, beside.layout, device, None)
    )

    @functools.cache
    def noisy() -> list[RankValues]:
        return [_own_values(setup, beside.layout, device, each) for each in noises]

    return OneRank(values, noisy)


def _check_draws(
    values: RankValues, training: Training, play: Callable[[Training], RankValues]
) -> None:
    """Check that a training whose steps draw random numbers has the same values with others."""
    if any(each.draws for each in values.steps):
        check_draws(values, play(replace(training, draws_others=True)))


def _own_values(
    training: Training, layout: Layout, device: Device, noise: NoiseOfSteps | None
) -> RankValues:
    simulation = play_on(training, layout, device, noise, finds_races=False)
    ranks = [each for each in simulation.results if isinstance(each, RankValues)]
    if len(ranks) < layout.num_ranks:
        place = "one rank" if layout.num_ranks == 1 else str(layout)
        raise UsageError(f"the step on {place} does not end: {_why(simulation)}")
    ranks = [gathered_late(training, each) for each in ranks]
    one = as_one_rank(ranks, layout, training.own)
    if layout.num_ranks == 1:
        return one
    indices = range(training.num_steps)
    batches = _alone(lambda: tuple(map(training.whole_batch, indices)), device)
    return replace(one, batches=batches)


def _in_float64(
    training: Training,
    device: Device,
    skips: frozenset[int] = frozenset(),
    noises: Sequence[LowerNoise] = (),
    roundings: Roundings | None = None,
) -> OneRank:
    """Play a training in float64, from values in its dtype; in its dtype where it has to be."""
    computed_in: torch.dtype | None = torch.float64
    precise = replace(training, computed_in=computed_in)
    try:
        plain = _alone(lambda: train_plainly(precise, None, skips), device)
    except UsageError:  # its code names a dtype, which float64 does not fit to
        computed_in, precise = None, training
        plain = _alone(lambda: train_plainly(precise, None, skips), device)

    @functools.cache
    def noisy() -> list[RankValues]:
        return _alone(
            lambda: [train_plainly(precise, each, skips) for each in noises], device
        )

    return OneRank(
        plain, noisy, roundings=roundings, skips=skips, computed_in=computed_in
    )


def lower_reference(
    training: Training,
    roundings: Roundings,
    device: Device,
    skips: frozenset[int] = frozenset(),
) -> OneRank:
    """Play a training on one rank in float64, with the noise of lower dtypes.

    Args:
        training: The training; it has a loss.
        roundings: How it rounds on the mesh.
        device: Device that torch names to it.
        skips: Steps that the scaler skips on the mesh, since a value overflows there.

    Returns:
        The values, with those of plays with rounding noise.

    Raises:
        UsageError: It does not end.
    """
    noises = pairs_of_noises(roundings)
    return _in_float64(training, device, skips, noises, roundings)


def beside(
    training: Training,
    layout: Layout,
    ranks: Sequence[RankValues],
    reference: OneRank,
    device: Device,
) -> MeshPlay:
    """Return values of a training on a mesh, beside those of one rank."""
    plain = replace(training, computed_in=reference.computed_in)
    step = training.step
    return MeshPlay(
        layout,
        ranks,
        reference,
        own=training.own,
        clip=training.clip,
        num_micro_batches=training.num_micro_batches,
        has_loss=training.loss is not None,
        leaves_schedule=not (
            training.schedule is None or step is None or takes(step, "schedule")
        ),
        gradients_of=lambda *given: _alone(
            lambda: plain_gradients(plain, *given), device
        ),
        optimized=lambda values: _alone(
            lambda: optimizer_steps(training, values), device
        ),
    )


def _alone(function: Callable[[], _T], device: Device) -> _T:
    with watched():
        simulation = simulate_for_values(lambda: (function(),), 1, device)
    returned: tuple[_T] | None = simulation.results[0] if simulation.results else None
    if returned is None:
        raise UsageError(f"the step on one rank does not end: {_why(simulation)}")
    return returned[0]


def _why(simulation: Simulation) -> str:
    """Return in one line why a rank did not come to the end of its program."""
    if simulation.refused:
        return simulation.refused
    if not simulation.violations:
        return "it leaves the training early, without an error"
    violation = simulation.violations[0].violation
    found = violation.evidence
    words = [each.words for each in found.events]
    events = found.details if isinstance(found, Ended) else words
    place = f", at {events[0]}" if events else ""
    return f"{in_one_line(violation.summary)}{place}"
