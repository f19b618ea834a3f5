"""Compare a whole training step on any mesh with one rank: the way in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from syncverify.errors import UsageError
from syncverify.faces.simulation.program import Device
from syncverify.faces.whole_step.closed_form import closed_form
from syncverify.faces.whole_step.comparing import compare, outvoting
from syncverify.faces.whole_step.data import NotFinite, variations
from syncverify.faces.whole_step.described import Described, layouts_of, numbers_of
from syncverify.faces.whole_step.outcome import FoundMistake, LayoutPlay, Parity
from syncverify.faces.whole_step.places import places_of
from syncverify.faces.whole_step.playing import (
    check,
    one_thread_of_torch,
    play_on,
    ranks_of,
    reference_of,
)
from syncverify.faces.whole_step.resuming import resumed_plays
from syncverify.faces.whole_step.shrinking import Smaller, shrunk, with_its_number
from syncverify.faces.whole_step.training import (
    ALL_ONES,
    Beside,
    Function,
    Split,
    Training,
    adamw,
)
from syncverify.faces.whole_step.value_checks import check_same_again
from syncverify.judge.properties.memory import memory_is_written_before_it_is_read
from syncverify.judge.traced import launches_of
from syncverify.judge.whole_step.causes import Scaled
from syncverify.judge.whole_step.differences import OneRank
from syncverify.judge.whole_step.findings import with_functions
from syncverify.judge.whole_step.layout import Layout, Own
from syncverify.judge.whole_step.values import RankValues

# Axes and sizes of meshes, one or several, or a number of ranks.
Layouts = int | str | Mapping[str, int] | Sequence[Mapping[str, int] | str]


def parity(
    build: Function,
    parallelize: Function,
    batch: Function,
    loss: Function | None = None,
    *,
    layouts: Layouts,
    step: Function | None = None,
    optimizer: Function = adamw,
    schedule: Function | None = None,
    clip: float | None = None,
    scaler: Function | None = None,
    split: Split | None = None,
    own: Own | None = None,
    weights: str | None = None,
    steps: int = 2,
    micro_batches: int | Iterable[int] = 1,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    resume: bool = False,
    save: Function | None = None,
    load: Function | None = None,
    device: Device = "cuda",
) -> Parity:
    """Train a model on simulated meshes, and compare each step with that of one rank.

    Functions name the values that they take.

    Args:
        build: Makes the model: the same values on each rank.
        parallelize: Takes `model` and `mesh`; returns the model, or None where it is changed in
            place.
        batch: Makes the batch of a step, for all ranks: tensors in lists, tuples, dicts.
        loss: Takes `model` and `batch`; returns the loss, a scalar, or its terms by name, which are
            added. None where `step` is all that there is.
        layouts: Axes and sizes of the meshes, such as `{"dp": 2, "tp": 2}` or `"dp=2,tp=2"`;
            4 or `"all:4"` takes all of `dp` and `tp` of 4 ranks at most.
        step: Takes `model`, `batch` (the rank's part), `micro_batches` (a list of its parts),
            `mesh`, `optimizer`, `scaler`, `step_index`; makes one whole step. Scalars that it
            returns by name are compared. None takes torch's own step.
        optimizer: Takes `parameters`, or `model`; returns an optimizer, or a list of them.
        schedule: Takes `optimizer`; makes the schedule of its learning rate, which the plain
            step advances after each step, and `step` gets by this name. None for none.
        clip: Largest norm; None clips nothing.
        scaler: Makes the scaler of the loss; None scales nothing.
        split: Axes over which the rows of the batch are split; None takes those whose names
            start with `dp`.
        own: Axes over which ordinary tensors are split.
        weights: Key of the batch with the weight of each token. Ranks with unequal numbers of
            tokens are played then, and a micro-batch without tokens.
        steps: Number of steps.
        micro_batches: Numbers of parts of each rank's batch; each is played.
        dtype: Floating-point dtype of model and batch.
        seed: Seed of model and data.
        resume: Whether to save after half of the steps, to load on the same layout and on the
            next one, and to compare with a training without a pause.
        save: Takes `model`, `optimizer`, `scaler`, `schedule`, `mesh`, `path`; writes a
            checkpoint to the folder `path`. None takes torch's distributed checkpoint.
        load: Takes the same; reads the checkpoint into them.
        device: Device that torch names to the program.

    Returns:
        All that differs, with the mistake behind it.

    Raises:
        UsageError: An argument is wrong, the training does not run on one rank, or its values
            cannot be compared.
    """
    training = Training(
        build=build,
        parallelize=parallelize,
        batch=batch,
        loss=loss,
        step=step,
        schedule=schedule,
        clip=clip,
        scaler=scaler,
        split=split,
        own={} if own is None else own,
        weights=weights,
        num_steps=steps,
        dtype=dtype,
        seed=seed,
        resume=resume,
        save=save,
        load=load,
        optimizer=optimizer,
        device=device,
    )
    listed = layouts_of(layouts)
    if not listed:
        raise UsageError("expected at least one layout")
    *_, last = comparisons(
        Described(training, tuple(listed), numbers_of(micro_batches))
    )
    return last


def comparisons(described: Described, path: str = "") -> Iterator[Parity]:
    """Compare each layout with one rank, and yield the report after each.

    The path is that of the file or module; "" where there is none.

    Raises:
        UsageError: The training cannot be played.
    """
    training, last = described.training, None
    with one_thread_of_torch():
        check(training, described.layouts, described.numbers)
        if training.loss is None:
            outcomes = _own_step(described, path)
        else:
            reference = reference_of(training, described.layouts[0])
            outcomes = _beside(_Reference(described, reference), path)
        for last in outcomes:
            yield last
    if last is not None:
        _refuse_without_communication(last)


def _refuse_without_communication(outcome: Parity) -> None:
    """Raise UsageError for a training that is right because its ranks do not communicate."""
    runs = (each.simulation.run for each in outcome.plays)
    ranks = (rank for run in runs if run is not None for rank in run.ranks)
    communicates = (
        len(launch.ranks) > 1 for rank in ranks for launch in launches_of(rank.trace)
    )
    if outcome.is_right and not any(communicates):
        raise UsageError(
            "no rank communicates on any layout, so nothing can differ: parallelize() has to "
            "put the model on the mesh, and a layout needs two ranks or more"
        )


@dataclass(frozen=True, slots=True)
class _Reference:
    """The values with which layouts are compared."""

    described: Described
    values: OneRank
    # Why these are not the values of an own step on one rank; "" otherwise.
    why_not_alone: str = ""


def _own_step(described: Described, path: str) -> Iterator[Parity]:
    """Compare an own step on all layouts with each other.

    One rank comes first, since nothing can be wrong between ranks there. It is the odd one out if
    no layout agrees with it, and two layouts agree that no single mistake makes alike.
    """
    own, last = _own_reference(described), None
    for last in _beside(own, path):
        yield last
    if last is None or own.why_not_alone:
        return
    layout = outvoting(last.plays, described.training)
    if layout is not None:
        yield from _beside(_reference_on(layout, described), path)


def _own_reference(described: Described) -> _Reference:
    """Return the own step on one rank, or on the first layout; refuse one that ends on neither."""
    layouts = described.layouts
    try:
        return _reference_on(layouts[0].of_ones(), described)
    except UsageError as error:
        is_one = len(layouts) * len(described.numbers) < 2
        if is_one or callable(described.training.own):
            raise
        why = str(error)
        try:
            return replace(_reference_on(layouts[0], described), why_not_alone=why)
        except UsageError:
            raise error from None


def _reference_on(layout: Layout, described: Described) -> _Reference:
    beside = Beside(layout, min(described.numbers))
    training = replace(described.training, beside=beside)
    values = reference_of(training, layout)
    return _Reference(replace(described, training=training), values)


def _beside(reference: _Reference, path: str) -> Iterator[Parity]:
    """Compare each layout, and yield the report after each."""
    described, training = reference.described, reference.described.training
    name = path or getattr(training.build, "__module__", "")
    so_far = Parity(
        name,
        path,
        plays=(),
        mistakes=(),
        num_steps=training.num_steps,
        seed=training.seed,
        beside=training.beside,
        why_not_alone=reference.why_not_alone,
    )
    for number in described.numbers:
        setup = replace(training, num_micro_batches=number)
        for layout in _layouts(reference, number):
            for varied, values in _varied(setup, layout, reference):
                played = compare(varied, layout, values)
                so_far = _with_play(so_far, varied, played, shrinks=True)
                yield so_far
            base = _base_of_closed_form(described, setup, layout, so_far.plays)
            ones = base and closed_form(base, setup, reference.values)
            if ones is not None:
                so_far = _with_play(so_far, setup, ones)
                yield so_far
        if not (setup.resume and so_far.is_right):
            continue
        if any(e.roundings is not None and e.roundings.is_low for e in so_far.plays):
            raise UsageError(
                "a training with a pause is compared in float64 or float32 alone, and this one "
                "rounds to a lower dtype: leave out `resume`, or the lower dtype"
            )
        for played in resumed_plays(setup, described.layouts, reference.values):
            so_far = _with_play(so_far, setup, played)
            yield so_far


def _base_of_closed_form(
    described: Described, setup: Training, layout: Layout, plays: Sequence[LayoutPlay]
) -> LayoutPlay | None:
    """Return the play of the batch as it is, if gradients of all ones may show more than it.

    They do where it is right, and gradients are zero or too small to be clipped, a user asks for
    these data, or an own step is compared with itself. The first number of micro-batches is enough.
    """
    is_listed = layout in described.layouts and described.has(ALL_ONES)
    if not is_listed or setup.num_micro_batches != described.numbers[0]:
        return None
    own = [each for each in plays if each.layout == layout]
    base = next(each for each in own if each.variation is None)
    clips = setup.clip is not None or base.has_norm
    shows_less = bool(base.zero) or base.unclipped is not None
    is_wanted = shows_less or ALL_ONES in described.data
    is_new = setup.loss is None or (clips and is_wanted)
    return base if is_new and all(e.is_right for e in own) else None


def _layouts(reference: _Reference, number: int) -> list[Layout]:
    """Return the layouts to play with a number of micro-batches; an own step also on one rank."""
    listed, beside = reference.described.layouts, reference.described.training.beside
    if beside is None or reference.why_not_alone:
        return [*listed]
    alone = dict.fromkeys(each.of_ones() for each in listed)
    more = [e for e in alone if Beside(e, number) != beside and e not in listed]
    return [*more, *listed]


def _varied(
    setup: Training, layout: Layout, reference: _Reference
) -> Iterator[tuple[Training, OneRank]]:
    """Yield the training, and each variation of it, with the values to compare with."""
    yield setup, reference.values
    if layout not in reference.described.layouts:
        return
    described = reference.described
    listed = variations(setup, layout, reference.values)
    for variation in (each for each in listed if described.has(each.word)):
        # One step shows the decision: in the second one there is no overflow.
        num_steps = 1 if isinstance(variation, NotFinite) else setup.num_steps
        varied = replace(setup, variation=variation, num_steps=num_steps)
        yield varied, reference_of(varied, layout)


def _with_play(
    so_far: Parity, setup: Training, played: LayoutPlay, *, shrinks: bool = False
) -> Parity:
    """Return the report with one play more.

    A new mistake is noted in the smallest training that shows it, or as it is.
    """
    mistakes = [*so_far.mistakes]
    is_chance = shrinks and _reads_unwritten_memory(played)
    for finding in () if is_chance else played.findings:
        same = (i for i, e in enumerate(mistakes) if e.finding.is_same(finding))
        if (index := next(same, None)) is not None:
            known = mistakes[index]
            layouts = tuple(dict.fromkeys([*known.layouts, played.layout]))
            mistakes[index] = replace(known, layouts=layouts)
        elif not shrinks:
            mistakes.append(_found(Smaller(setup, played, finding), played.layout))
        elif not _is_of_no_scaled_loss(mistakes, played):
            best = shrunk(setup, played, finding)
            layout, first = best.played.layout, best.played.simulation
            again = play_on(
                best.training, layout, finds_races=False, notes_functions=True
            )
            check_same_again(layout, first.results, again.results)
            named = with_its_number(setup, played, finding, best)
            ranks = ranks_of(again, layout) or []
            named = with_functions(named, best.played.findings, ranks)
            mistakes.append(_found(replace(best, finding=named), played.layout))
    plays = (*so_far.plays, played)
    return replace(so_far, plays=plays, mistakes=tuple(mistakes))


def _reads_unwritten_memory(played: LayoutPlay) -> bool:
    """Tell whether values are chance: another play has different ones in such memory."""
    name = memory_is_written_before_it_is_read.__name__
    found = played.simulation.violations
    return any(each.violation.property == name for each in found)


def _is_of_no_scaled_loss(mistakes: Sequence[FoundMistake], played: LayoutPlay) -> bool:
    """Tell whether an infinite scaled loss shows but that the step has another loss."""
    causes = (each.finding.cause for each in mistakes)
    is_unscaled = any(isinstance(each, Scaled) and each.is_scale for each in causes)
    variation = played.variation
    return is_unscaled and isinstance(variation, NotFinite) and variation.is_local


def _found(smallest: Smaller, found_on: Layout) -> FoundMistake:
    training, played, finding = smallest.training, smallest.played, smallest.finding
    ranks = [e for e in played.simulation.results if isinstance(e, RankValues)]
    steps = (each.steps[finding.step] for each in ranks)
    backwards = tuple(dict.fromkeys(line for each in steps for line in each.backwards))
    run = played.simulation.run
    return FoundMistake(
        finding=finding,
        layout=played.layout,
        num_micro_batches=played.num_micro_batches,
        sizes=tuple(training.sizes.items()),
        num_rows=training.num_rows,
        layouts=(found_on,),
        variation=played.variation,
        saved_on=played.saved_on,
        places=places_of(finding, training, played.layout, run, backwards),
    )
