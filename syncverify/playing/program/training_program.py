"""The training program of a scenario, as a tuple of actions.

The rank program executes the actions, and `syncverify export` prints them. In order:

    make and bind a synchronizer    announce micro-batches if its constructor takes no number
    for each step:
        change parameters           events that freeze, unfreeze, cast or move
        evaluate                    where the scenario says so
        announce micro-batches      if the synchronizer has the method
        backwards                   observed after each but the last: "accumulated"
        wait()                      observed: "reduced"
        update parameters           as an optimizer does, in place
        replace gradients           words `.../replaced`; `.../replaced_while_accumulating` does so
                                    after each observation "accumulated"
        change parameters           event `cast_before_zero`
        zero_grad()                 observed: "zeroed"
        drop gradients              words that set gradients to None
        unbind and bind             events that rebind
    unbind the synchronizer
    one plain backward              observed: "unbound"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from syncverify.playing.program.graphs.backwards import num_backwards
from syncverify.scenario.feature_row import ChangeKind, base_word, variant
from syncverify.scenario.feature_table import EVENTS, PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.step_plan import num_agreed_micro_batches, num_micro_batches
from syncverify.trace.run import ObservationPoint

Method = Literal[
    "bind", "set_required_accumulations", "flush", "wait", "reset", "zero_grad", "unbind",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Make:
    """Make a synchronizer."""

    # First step in which it is used.
    step: int
    # Number of backwards of that step; None if its constructor takes none.
    count: int | None


@dataclass(frozen=True, slots=True)
class Call:
    """Call a method of the synchronizer."""

    method: Method
    step: int
    arguments: tuple[int, ...] = ()
    # Method to call where the synchronizer lacks the first one; None calls none.
    otherwise: Method | None = None


@dataclass(frozen=True, slots=True)
class Backward:
    """Run forward and backward of a micro-batch."""

    step: int
    micro_batch: int
    # Number of micro-batches that the synchronizer expects in the step.
    agreed: int
    # Whether the training program raises in the middle of the backward.
    fails: bool = False
    # Whether odd ranks leave it out.
    even_ranks_alone: bool = False

    @property
    def is_last(self) -> bool:
        """Tell whether the synchronizer expects no other one in the step."""
        return self.micro_batch >= self.agreed - 1


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Run the forward of a step's first micro-batch without a graph, and no backward."""

    step: int


@dataclass(frozen=True, slots=True)
class Recover:
    """Throw the step of a failed backward away."""

    call: Call
    # Actions instead where the synchronizer kept the error to itself.
    if_hidden: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Freeze, train, cast or move parameters, as the event of a step says."""

    step: int
    kind: ChangeKind


@dataclass(frozen=True, slots=True)
class Replace:
    """Multiply gradients by a factor, and assign the products to `.grad`."""

    factor: float
    every: int = 1
    first: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """Set gradients to None."""

    every: int = 1
    first: int = 0


@dataclass(frozen=True, slots=True)
class Update:
    """Write gradients and parameters in place, as an optimizer does."""


@dataclass(frozen=True, slots=True)
class PlainBackward:
    """Run a backward without the synchronizer, after the last step."""

    # Number of steps: this backward counts as one more.
    step: int


@dataclass(frozen=True, slots=True)
class Observe:
    """Read the gradients; see `Observation`."""

    point: ObservationPoint
    step: int
    micro_batch: int | None = None

    @override
    def __str__(self) -> str:
        """Say the moment in words."""
        match self.point:
            case "accumulated":
                return f"after micro-batch {self.micro_batch} of step {self.step}"
            case "reduced":
                return f"after wait() of step {self.step}"
            case "zeroed":
                return f"after zero_grad() of step {self.step}"
        return "after unbind() and one more backward"


Action = (
    Make
    | Call
    | Backward
    | Evaluate
    | Recover
    | Change
    | Replace
    | Drop
    | Update
    | PlainBackward
    | Observe
)


@dataclass(frozen=True, slots=True)
class Step:
    """The actions of an optimizer step."""

    number: int
    # Actions before the step, on the default stream.
    before: tuple[Action, ...]
    # Actions on the stream of the step.
    within: tuple[Action, ...]
    # Actions after the step, on the default stream.
    after: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class TrainingProgram:
    """The actions of a training program."""

    start: tuple[Action, ...]
    steps: tuple[Step, ...]
    unbind: Call
    after_unbind: tuple[Action, ...]


def training_program(scenario: Scenario, *, takes_count: bool) -> TrainingProgram:
    """Return the training program of a scenario.

    `takes_count` tells whether the synchronizer's constructor takes a number of micro-batches.
    """
    writer, last = _Writer(scenario, takes_count), scenario.num_steps
    announced = [] if takes_count else [writer.announce(0)]
    return TrainingProgram(
        (writer.make(0), Call("bind", 0), *announced),
        tuple(map(writer.step, range(last))),
        Call("unbind", last - 1),
        (Drop(), PlainBackward(last), Observe("unbound", last)),
    )


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the actions of a scenario; see `training_program`."""

    scenario: Scenario
    takes_count: bool

    def step(self, step: int) -> Step:
        parts = self._before(step), self._within(step), self._after(step)
        return Step(step, *map(tuple, parts))

    def make(self, step: int) -> Make:
        count = num_backwards(self.scenario, step) if self.takes_count else None
        return Make(step, count)

    def announce(self, step: int) -> Call:
        count = num_backwards(self.scenario, step)
        return Call("set_required_accumulations", step, (count,))

    def _before(self, step: int) -> Iterator[Action]:
        event = EVENTS[self.scenario.step_event(step)]
        is_in_turn = "unfreeze_in_turn" in self.scenario.events[:step]
        if is_in_turn or (event.change and not event.is_before_zero):
            yield Change(step, event.change or "freeze")

    def _within(self, step: int) -> Iterator[Action]:
        event = self.scenario.step_event(step)
        if self.scenario.evaluation == "before_steps":
            yield Evaluate(step)
        if self._announces(step):
            yield self.announce(step)
        yield from self._backwards(step)
        if event == "raise_in_backward":
            reset = Call("reset", step, otherwise="zero_grad")
            yield Recover(reset, tuple(self._finish(step)))
        elif event != "unbind_early":
            yield from self._finish(step)
        if event != "unbind_early":
            yield Observe("zeroed", step)
        if EVENTS[event].drops_every:
            yield Drop(EVENTS[event].drops_every, EVENTS[event].first)

    def _announces(self, step: int) -> bool:
        """Tell whether the caller announces the number of micro-batches before a step."""
        # A number that stays, also over `unbind()` and `bind()`, need not be announced again,
        # and may be: before even steps.
        if step == 0:  # announced as the synchronizer is made and bound
            return False
        event = base_word(self.scenario.step_event(step - 1))
        if event not in {PLAIN, "rebind", "unbind_early"}:
            return event != "rebind_announced"
        counts = self.scenario.accumulations
        return counts[step] != counts[step - 1] or step % 2 == 0

    def _backwards(self, step: int) -> Iterator[Action]:
        event = self.scenario.step_event(step)
        agreed = num_agreed_micro_batches(self.scenario, step)
        for micro_batch in range(num_micro_batches(self.scenario, step)):
            is_last = micro_batch == agreed - 1
            fails = event == "raise_in_backward" and is_last
            is_alone = is_last and EVENTS[event].even_ranks_alone
            yield (backward := Backward(step, micro_batch, agreed, fails, is_alone))
            if backward.is_last:  # after it, reductions may still write
                continue
            yield Observe("accumulated", step, micro_batch)
            if variant(event) == "replaced_while_accumulating":
                yield _replacement(event)

    def _finish(self, step: int) -> Iterator[Action]:
        event = self.scenario.step_event(step)
        if event == "tail":
            yield Call("flush", step)
        yield from [Call("wait", step)] * EVENTS[event].waits
        if EVENTS[event].waits:
            yield Observe("reduced", step)
            yield Update()
        if variant(event) == "replaced":
            yield _replacement(event)
        change = EVENTS[event].change
        if change is not None and EVENTS[event].is_before_zero:
            yield Change(step, change)
        yield Call("zero_grad", step)

    def _after(self, step: int) -> Iterator[Action]:
        event = self.scenario.step_event(step)
        if not EVENTS[event].rebinds:
            return
        following = min(step + 1, self.scenario.num_steps - 1)
        if event == "rebind_announced":
            yield self.announce(following)
        yield Call("unbind", step)
        if event == "rebind_announced/unbound":
            yield self.announce(following)
        if event == "unbind_early":
            yield Drop()
        if base_word(event) == "remade":
            yield self.make(following)
        yield Call("bind", step)
        if event == "unbind_early":
            yield Observe("zeroed", step)


def _replacement(event: str) -> Replace:
    row = EVENTS[event]
    return Replace(row.factor, row.every, row.first)
