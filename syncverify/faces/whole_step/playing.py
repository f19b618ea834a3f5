"""Plays of a training: on one rank, and on a mesh, both on the simulated machine."""

import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from syncverify.faces.whole_step.input_checks import (
    check_same_on_ranks,
    check_training,
    digests_of,
)
from syncverify.faces.whole_step.steps import optimizer_steps, plain_gradients, train
from syncverify.faces.whole_step.training import Beside, Training
from syncverify.faces.whole_step.value_checks import check_draws
from syncverify.faces.whole_step.watching import watched_steps
from syncverify.judge.evidence import Ended
from syncverify.judge.whole_step.differences import OneRank
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.mesh_play import MeshPlay
from syncverify.judge.whole_step.noise import NOISES, Noise, pairs_of_noises
from syncverify.judge.whole_step.parts import as_one_rank
from syncverify.judge.whole_step.rounding import Roundings
from syncverify.judge.whole_step.shards import fill
from syncverify.judge.whole_step.values import Quantity, RankValues, StepValues
from syncverify.plain_text import in_one_line

_T = TypeVar("_T")
# The reference of a training in these dtypes is computed in float64 where it can be.
_LOW: Final = (torch.bfloat16, torch.float16)
# torch says there how to make a redistribution faster, also of one that only reads values.
_ADVICE: Final = logging.getLogger("torch.distributed.tensor._redistribute")
_SCHEDULE_FIRST: Final = r"Detected call of `lr_scheduler.step\(\)` before"


@contextmanager
def watched(*, notes_functions: bool = False) -> Iterator[None]:
    """Let steps be watched within a block, and torch give no advice on speed."""
    level = _ADVICE.level
    _ADVICE.setLevel(logging.ERROR)
    try:
        with watched_steps(notes_functions=notes_functions):
            yield
    finally:
        _ADVICE.setLevel(level)


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
    training: Training, layouts: Sequence[Layout], numbers: Sequence[int]
) -> None:
    """Raise UsageError if a training cannot be played: on one rank, or its model on all."""
    _alone(lambda: check_training(training, layouts, numbers), training.device)
    num_ranks = max(layout.num_ranks for layout in layouts)
    with watched():
        built = simulate_for_values(
            lambda: digests_of(training.model()), num_ranks, training.device
        )
    # A build that ends on one rank alone is reported as the training of a layout.
    made = {rank: each for rank, each in enumerate(built.results) if each is not None}
    check_same_on_ranks(made)


def play_on(
    training: Training,
    layout: Layout,
    noise: Noise | None = None,
    *,
    finds_races: bool = True,
    notes_functions: bool = False,
) -> Simulation:
    """Return a play of a training on a mesh, with `RankValues` as results.

    Races are looked for, unless values are all that is needed. Autograd functions are noted where a
    mistake is known.
    """
    run = simulate if finds_races else simulate_for_values

    def program() -> RankValues:
        return train(training, layout, noise)

    program.__module__, program.__qualname__ = "", f"training on {layout}"
    with watched(notes_functions=notes_functions), warnings.catch_warnings():
        if isinstance(training.variation, NotFinite):
            # The data skip the step before a schedule.
            warnings.filterwarnings("ignore", message=_SCHEDULE_FIRST)
        simulation = run(program, layout.num_ranks, device=training.device)
    if (ranks := ranks_of(simulation, layout)) is not None:
        fill([each.kept for each in ranks])
    return simulation


def ranks_of(simulation: Simulation, layout: Layout) -> list[RankValues] | None:
    """Return the values of each rank; None where one has not ended, such as by `sys.exit(0)`."""
    ranks = [each for each in simulation.results if isinstance(each, RankValues)]
    return ranks if len(ranks) == layout.num_ranks else None


def reference_of(
    training: Training, layout: Layout, noises: Sequence[Noise] = NOISES
) -> OneRank:
    """Return a play of a training on one rank: plainly where it has a loss, or else its own step.

    An own step is made where `beside` of the training says, or on axes of the layout that have one rank
    each. Plays with rounding noise are made once they are needed.
    """
    if training.loss is None:
        return _own_reference(training, layout, noises)
    if training.dtype in _LOW:
        return _in_float64(training)
    return _reference(_plain, training, noises)


def reference_in_lower_dtypes(
    training: Training,
    layout: Layout,
    ranks: Sequence[RankValues],
    roundings: Roundings,
) -> OneRank:
    """Return the values of one rank with the bounds of lower dtypes, as ranks of a mesh round to them."""
    noises = pairs_of_noises(roundings)
    if training.loss is None:
        own = _own_reference(training, layout, noises)
        return replace(own, roundings=roundings)
    found = _in_float64(training, noises, _skips(ranks))
    return replace(found, roundings=roundings)


def _reference(
    play: Callable[[Training, Noise | None], RankValues],
    training: Training,
    noises: Sequence[Noise],
) -> OneRank:
    """Return the values of a play, which may not depend on the numbers that its steps draw."""
    values = play(training, None)
    if any(each.draws for each in values.steps):
        check_draws(values, play(replace(training, draws_others=True), None))
    noisy = functools.cache(lambda: [play(training, each) for each in noises])
    return OneRank(values, noisy)


def _plain(
    training: Training, noise: Noise | None, skips: frozenset[int] = frozenset()
) -> RankValues:
    return _alone(lambda: train(training, None, noise, skips), training.device)


def _own_reference(
    training: Training, layout: Layout, noises: Sequence[Noise]
) -> OneRank:
    """Make the own step on the layout that others are compared with."""
    number = training.num_micro_batches
    beside = training.beside or Beside(layout.of_ones(), number)
    setup = replace(training, num_micro_batches=beside.num_micro_batches)

    def play(training: Training, noise: Noise | None) -> RankValues:
        return _own_values(training, beside.layout, noise)

    return _reference(play, setup, noises)


def _own_values(training: Training, layout: Layout, noise: Noise | None) -> RankValues:
    simulation = play_on(training, layout, noise, finds_races=False)
    if (ranks := ranks_of(simulation, layout)) is None:
        place = "one rank" if layout.num_ranks == 1 else str(layout)
        raise UsageError(f"the step on {place} does not end: {_why(simulation)}")
    ranks = [gathered_late(training, each) for each in ranks]
    one = as_one_rank(ranks, layout, training.own)
    if layout.num_ranks == 1:
        return one
    indices = range(training.num_steps)
    batches = _alone(lambda: tuple(map(training.whole_batch, indices)), training.device)
    return replace(one, batches=batches)


def _in_float64(
    training: Training,
    noises: Sequence[Noise] = (),
    skips: frozenset[int] = frozenset(),
) -> OneRank:
    """Play a training in float64, from values in its dtype; in its dtype where it has to be."""

    def play(training: Training, noise: Noise | None) -> RankValues:
        return _plain(training, noise, skips)

    computed_in: torch.dtype | None = torch.float64
    try:
        found = _reference(play, replace(training, computed_in=computed_in), noises)
    except UsageError:  # its code names a dtype, which float64 does not fit to
        computed_in = None
        found = _reference(play, training, noises)
    return replace(found, skips=skips, computed_in=computed_in)


def _skips(ranks: Sequence[RankValues]) -> frozenset[int]:
    """Return the steps that a scaler skips, since a value overflows; refuse that without one."""
    overflows = sorted({step for each in ranks for step in each.overflows})
    if not any(each.scales for each in ranks):
        for step in overflows:
            tensors = [each.steps[step].tensors[Quantity.GRADIENT] for each in ranks]
            gradients = (each for named in tensors for each in named.values())
            if not all(e is None or bool(e.isfinite().all()) for e in gradients):
                raise UsageError(
                    f"a gradient overflows in float16 in step {step + 1}, on the mesh; give "
                    "a `scaler`, or values of another size"
                )
        return frozenset()
    return frozenset(
        step for step in overflows if not all(e.steps[step].num_steps for e in ranks)
    )


def gathered_late(training: Training, values: RankValues) -> RankValues:
    """Return values of a rank, with the parameters that the next forward gathers.

    A rank may keep a shard that its optimizer updates, and gather the parameters of the model in the
    forward pass. After the step these have the values of the step before, or none. So the values that
    the next backward sees are compared, and those of the last step are not.

    Raises:
        UsageError: There is one step, and so no next forward.
    """
    left = [_left(each) for each in values.steps]
    if len(left) == 1 and left[0] and training.variation is None:
        raise UsageError(
            f"the optimizer leaves {min(left[0])} as it is, and updates other tensors: the forward "
            "of the next step may gather it; make two steps or more"
        )
    steps, late = [*values.steps], set[str]()
    for index, following in enumerate(values.steps[1:]):
        step = steps[index]
        seen = {n: following.used[n] for n in left[index] if n in following.used}
        found = {n: v for n, v in seen.items() if not _is_equal(v, step.parameters[n])}
        steps[index] = _with(step, {**step.parameters, **found})
        late |= {*found}
    last, late = steps[-1], late & left[-1]
    steps[-1] = _with(last, {n: v for n, v in last.parameters.items() if n not in late})
    return replace(values, steps=tuple(steps), late=frozenset(late))


def _left(step: StepValues) -> set[str]:
    """Return the parameters that a step leaves as its backward saw them, or without elements."""
    return {
        name
        for name, used in step.used.items()
        if name in step.read_elsewhere | step.copied
        if (value := step.parameters.get(name)) is not None
        if not value.numel() or _is_equal(value, used)
    }


def _with(
    step: StepValues, parameters: Mapping[str, torch.Tensor | None]
) -> StepValues:
    return replace(step, tensors={**step.tensors, Quantity.PARAMETER: parameters})


def _is_equal(one: torch.Tensor | None, two: torch.Tensor | None) -> bool:
    if one is None or two is None or one.shape != two.shape:
        return one is two
    return torch.equal(one, two)


def beside(
    training: Training, layout: Layout, ranks: Sequence[RankValues], reference: OneRank
) -> MeshPlay:
    """Return values of a training on a mesh, beside those of one rank."""
    plain, device = (
        replace(training, computed_in=reference.computed_in),
        training.device,
    )
    step, schedule = training.step, training.schedule
    return MeshPlay(
        layout,
        ranks,
        reference,
        own=training.own,
        clip=training.clip,
        num_micro_batches=training.num_micro_batches,
        has_loss=training.loss is not None,
        leaves_schedule=not (
            schedule is None or step is None or takes(step, "schedule")
        ),
        gradients_of=lambda *e: _alone(lambda: plain_gradients(plain, *e), device),
        optimized=lambda e: _alone(lambda: optimizer_steps(training, e), device),
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
