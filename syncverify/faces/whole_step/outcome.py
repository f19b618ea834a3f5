"""The outcome of a comparison with one rank, as values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step.data import NotFinite
from syncverify.faces.whole_step.training import Beside, Variation
from syncverify.judge.remarks import Remark
from syncverify.judge.whole_step.causes import WrongQuantity
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.rounding import Roundings
from syncverify.judge.whole_step.values import Quantity, RankValues
from syncverify.rendered import Rendered
from syncverify.scenario.replay_token import ProgramPlay
from syncverify.trace.source_lines import SourceLine


@dataclass(frozen=True, slots=True)
class WorstError:
    """The largest difference of one tensor."""

    # Largest difference of an element, as a part of the tensor's largest one.
    error: float
    # The first quantity that is wrong; None where all are right.
    quantity: Quantity | None
    # Largest difference of an element of the right values, as a part of the tolerance.
    share_of_rounding: float = 0.0
    num_wrong: int = 0


def worst_errors(values: Iterable[ComparedValue]) -> dict[str, WorstError]:
    """Return the largest difference of each tensor over all steps and quantities.

    Wrong values alone say how large the difference of a wrong tensor is.
    """
    by_name = dict[str, list[ComparedValue]]()
    for each in values:
        by_name.setdefault(each.name, []).append(each)
    return {name: _worst(listed) for name, listed in by_name.items()}


def _worst(values: Sequence[ComparedValue]) -> WorstError:
    wrong = [each for each in values if each.wrong_ranks]
    right = [each for each in values if not each.wrong_ranks]
    return WorstError(
        max(each.error for each in wrong or values),
        wrong[0].quantity if wrong else None,
        max((each.share_of_rounding for each in right), default=0.0),
        len(wrong),
    )


class UnreachedClip(NamedTuple):
    """A largest norm that no gradient norm reaches: clipping changes nothing, right or wrong."""

    norm: float  # of all steps
    max_norm: float


@dataclass(frozen=True, slots=True)
class LayoutPlay:
    """A training on one layout."""

    layout: Layout
    num_micro_batches: int
    simulation: Simulation
    num_rows: int = 0
    findings: tuple[WrongQuantity, ...] = ()
    num_values: int = 0
    worst: Mapping[str, WorstError] = field(default_factory=dict)
    variation: Variation | None = None
    # Parameters whose gradients are zero on one rank in all steps: no mistake in their gradients
    # can show.
    zero: tuple[str, ...] = ()
    # Parameters whose values after the last step only a next forward would gather.
    late: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()  # parameters of one rank that no rank of the mesh has
    added: tuple[str, ...] = ()  # parameters of the mesh that one rank has not
    # Whether the variation could be played: not without a call of `unscale_()`, and not where the
    # norm of gradients of all ones is not known.
    is_tried: bool = True
    # Values that differ from a closed form, where no known mistake explains them: a step may mean
    # another norm.
    unexplained: tuple[WrongQuantity, ...] = ()
    # Values that an own step returns, and that differ: each rank may return its own.
    returned_apart: tuple[str, ...] = ()
    # Parameters with wrong gradients on some ranks that no parameter depends on.
    unread: tuple[str, ...] = ()
    # Whether ranks have different parts of the batch, as far as the axes tell.
    is_split: bool = True
    # Layout that wrote the checkpoint from which the training goes on; None for a training without
    # a pause.
    saved_on: Layout | None = None
    # The dtypes whose rounding gives the tolerances; None for those of float64.
    roundings: Roundings | None = None
    # The largest norm that no gradient norm reaches; None if one does, or none is known.
    unclipped: UnreachedClip | None = None
    # Values with so wide a bound that a factor of 2 might not be seen.
    not_judged: tuple[ComparedValue, ...] = ()

    @property
    def worst_error(self) -> float:
        """Largest difference of an element, as a part of its tensor's largest one."""
        wrong = [each for each in self.worst.values() if each.num_wrong]
        listed = wrong or self.worst.values()
        return max((each.error for each in listed), default=0.0)

    @property
    def share_of_rounding(self) -> float:
        """Largest difference of a right element, as a part of the tolerance."""
        return max(
            (each.share_of_rounding for each in self.worst.values()), default=0.0
        )

    @property
    def num_wrong(self) -> int:
        """Number of wrong values."""
        return sum(each.num_wrong for each in self.worst.values())

    @property
    def is_right(self) -> bool:
        """Tell whether values were compared, and nothing is wrong."""
        is_compared = self.num_values > 0 or not self.is_tried
        return is_compared and self.simulation.is_right and not self.findings

    @property
    def has_norm(self) -> bool:
        """Tell whether a rank returns a norm, or gives one to torch's clipping."""
        kinds = (Quantity.NORM, Quantity.RETURNED)
        ranks = [e for e in self.simulation.results if isinstance(e, RankValues)]
        return any(
            "norm" in step.tensors[kind]
            for rank in ranks
            for step in rank.steps
            for kind in kinds
        )

    @property
    def left_early(self) -> tuple[int, ...]:
        """The ranks that ended before the training, in a run without a fault."""
        if self.simulation.refused or not self.simulation.is_right:
            return ()
        results = self.simulation.results
        return tuple(rank for rank, each in enumerate(results) if each is None)


@dataclass(frozen=True, slots=True)
class FoundMistake:
    """A mistake, with the smallest training that was found to show it."""

    finding: WrongQuantity
    layout: Layout
    num_micro_batches: int
    sizes: tuple[tuple[str, int], ...]
    num_rows: int | None
    layouts: tuple[Layout, ...]  # all layouts that show it
    variation: Variation | None = None
    saved_on: Layout | None = None
    places: tuple[SourceLine, ...] = ()

    @property
    def identity(self) -> tuple[str, str]:
        """Return the wrong quantity and the cause."""
        return self.finding.quantity.value, self.finding.cause.kind


class StepIsWrongError(AssertionError):
    """A training differs from one rank; the text is its report."""


@dataclass(frozen=True, slots=True)
class Parity(Rendered):
    """A training beside one rank on all layouts.

    Attributes:
        name: Name of the training.
        path: Its file or module; "" where it has none.
        plays: Each layout, with each number of micro-batches.
        mistakes: One entry for each mistake.
        beside: Where the own step made the values that others are compared with; None where
            that is torch's plain step.
        why_not_alone: Why the own step is not compared with itself on one rank; "" where it is.
    """

    name: str
    path: str
    plays: tuple[LayoutPlay, ...]
    mistakes: tuple[FoundMistake, ...]
    num_steps: int
    seed: int
    beside: Beside | None = None
    why_not_alone: str = ""

    @property
    def num_violations(self) -> int:
        """Number of races, deadlocks and mismatches."""
        return sum(len(each.simulation.violations) for each in self.plays)

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """The remarks of all plays: each line once, with the ranks of its first play."""
        first = dict[object, Remark]()
        for played in self.plays:
            for each in played.simulation.remarks:
                first.setdefault((each.operation, each.lines), each)
        return tuple(first.values())

    @property
    def unclipped(self) -> tuple[LayoutPlay, ...]:
        """The right plays of layouts on which clipping changes nothing in any play."""
        tried = [e for e in self.plays if e.is_tried]
        plays = [e for e in tried if not isinstance(e.variation, NotFinite)]
        reached = {e.layout for e in plays if e.unclipped is None}
        base = [e for e in plays if e.is_right and e.variation is None]
        return tuple(
            each
            for each in base
            if each.unclipped is not None
            if each.layout.num_ranks > 1 and each.layout not in reached
        )

    def play_of(self, found: FoundMistake) -> ProgramPlay:
        """Return how to play the smallest training again."""
        # The number of steps says after which step a training is saved.
        steps = found.finding.step + 1 if found.saved_on is None else self.num_steps
        listed = dict.fromkeys(each for each in (found.saved_on, found.layout) if each)
        words = [word for each in listed for word in ("--layouts", str(each))]
        words += ["--steps", str(steps), "--seed", str(self.seed)]
        if any(each.num_micro_batches > 1 for each in self.plays):
            words += ["--micro-batches", str(found.num_micro_batches)]
        for name, size in found.sizes:
            words += ["--size", f"{name}={size}"]
        if found.num_rows is not None:
            words += ["--rows", str(found.num_rows)]
        if found.variation is not None:
            words += ["--data", found.variation.word]
        return ProgramPlay(*found.identity, "parity", tuple(words))

    def differing(self, found: FoundMistake) -> list[Beside]:
        """Return where the own step differs from itself by a mistake."""
        if self.beside is None or found.variation is not None:
            return []
        return _setups(
            each
            for each in self.plays
            if any(finding.is_same(found.finding) for finding in each.findings)
        )

    def agreeing(self) -> list[Beside]:
        """Return where the own step makes the same values."""
        own = [] if self.beside is None else [self.beside]
        right = _setups(each for each in self.plays if each.is_right)
        wrong = _setups(each for each in self.plays if not each.is_right)
        return [*dict.fromkeys(e for e in [*own, *right] if e not in wrong)]

    @property
    def refused(self) -> str:
        """What the machine does not simulate; "" where it played all layouts."""
        return next(
            (e.simulation.refused for e in self.plays if e.simulation.refused), ""
        )

    @property
    def is_right(self) -> bool:
        """Tell whether all layouts were played, and nothing is wrong."""
        return all(each.is_right for each in self.plays)

    def check(self) -> None:
        """Raise StepIsWrongError if a layout is wrong, or was not played."""
        if not self.is_right:
            raise StepIsWrongError(str(self))


def _setups(plays: Iterable[LayoutPlay]) -> list[Beside]:
    """Return layouts and numbers of micro-batches of plays of the batch as it is."""
    return [
        Beside(each.layout, each.num_micro_batches)
        for each in plays
        if each.variation is None and each.saved_on is None
    ]
