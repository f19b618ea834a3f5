"""The training program of a scenario as lines of a script, up to one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from syncverify.command.export.literals import tensor_by_rank
from syncverify.command.export.parameters_text import local_in_graph
from syncverify.command.export.shown_gradient import Moment
from syncverify.program.graphs.backwards import num_backwards
from syncverify.program.graphs.uses import USES
from syncverify.program.optimizer import GRADIENT_SCALE
from syncverify.program.rank_program import BYTES_PER_MB
from syncverify.scenario import step_plan
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contributions import contribution, magnitude, with_overflow
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec
from syncverify.scenario.vocabulary import (
    BEFORE_ZERO,
    DROPPING,
    PLAIN,
    REBINDING,
    REPLACING,
    WITHOUT_WAIT,
)

_CPU = 'torch.device("cpu")'
Segment = tuple[list[str], Moment | None]


@dataclass(frozen=True, slots=True)
class TrainingText:
    """Writes the training program of a scenario.

    Attributes:
        scenario: The scenario.
        capabilities: Contract of the subject.
        methods: Names of the optional methods that the synchronizer has.
        variables: Variable of each parameter, by its name.
        make: Expression that makes a synchronizer, up to its number of backwards.
        takes_count: Whether the expression takes that number.
        pauses: Whether micro-batches leave time to what runs beside them.
    """

    scenario: Scenario
    capabilities: Capabilities
    methods: frozenset[str]
    variables: Mapping[str, str]
    make: str
    takes_count: bool
    pauses: bool

    def up_to(self, end: Moment) -> Iterator[str]:
        """Yield the lines up to a moment."""
        for lines, moment in self._segments():
            yield from lines
            if moment == end:
                return

    def _segments(self) -> Iterator[Segment]:
        """Yield lines, each with the moment that they lead to; see `rank_program`."""
        first = [] if self.takes_count else [*self._announced(0)]
        yield [f"synchronizer = {self._made(0)}", "synchronizer.bind()", *first], None
        for step in range(self.scenario.num_steps):
            yield ["", f"# step {step}", *self._before_step(step)], None
            yield from self._backwards(step)
            yield from self._after_backwards(step)
        last = self.scenario.num_steps
        lines = ["synchronizer.unbind()", *self._drop_gradients()]
        lines += self._own_backward(last, 0)
        yield lines, Moment("unbound", last, None)

    def _made(self, step: int) -> str:
        count = f", {num_backwards(self.scenario, step)}" if self.takes_count else ""
        return f"{self.make}{count})"

    def _before_step(self, step: int) -> Iterator[str]:
        if step_plan.changes_parameters(self.scenario, step):
            yield from self._changes(step)
        if step_plan.announces_count(self.scenario, step):
            yield from self._announced(step)

    def _announced(self, step: int) -> Iterator[str]:
        if "set_required_accumulations" in self.methods:
            count = num_backwards(self.scenario, step)
            yield f"synchronizer.set_required_accumulations({count})"

    def _backwards(self, step: int) -> Iterator[Segment]:
        event = self.scenario.step_event(step)
        agreed = step_plan.num_agreed_micro_batches(self.scenario, step)
        for micro_batch in range(step_plan.num_micro_batches(self.scenario, step)):
            is_last = micro_batch >= agreed - 1
            moment = None if is_last else Moment("accumulated", step, micro_batch)
            yield [*self._micro_batch(step, micro_batch, is_last=is_last)], moment
            if event == "set_to_none/replaced_while_accumulating" and not is_last:
                yield [*self._replaced(event)], None

    def _after_backwards(self, step: int) -> Iterator[Segment]:
        event = self.scenario.step_event(step)
        zeroed = Moment("zeroed", step, None)
        if event == "unbind_early":
            yield from self._rebound(step, zeroed)
            return
        if event == "raise_in_backward":
            reset = "reset" if "reset" in self.methods else "zero_grad"
            yield [f"synchronizer.{reset}()"], zeroed
        else:
            if event == "tail" and "flush" in self.methods:
                yield ["synchronizer.flush()"], None
            if event not in WITHOUT_WAIT:
                times = 2 if event == "wait_twice" else 1
                yield ["synchronizer.wait()"] * times, Moment("reduced", step, None)
                yield [*self._optimizer()], None
            if event == "set_to_none/replaced":
                yield [*self._replaced(event)], None
            if event in BEFORE_ZERO:
                yield [*self._changes(step)], None
            yield ["synchronizer.zero_grad()"], zeroed
        if event in DROPPING:
            yield [*self._drop_gradients(DROPPING[event])], None
        if event in REBINDING:
            yield from self._rebound(step, None)

    def _rebound(self, step: int, moment: Moment | None) -> Iterator[Segment]:
        event = self.scenario.step_event(step)
        following = min(step + 1, self.scenario.num_steps - 1)
        lines = list[str]()
        if event == "rebind_announced":
            lines += self._announced(following)
        lines.append("synchronizer.unbind()")
        if event == "rebind_announced/unbound":
            lines += self._announced(following)
        if event == "unbind_early":
            lines += self._drop_gradients()
        if event == "remade":
            lines.append(f"synchronizer = {self._made(following)}")
        yield [*lines, "synchronizer.bind()"], moment

    def _drop_gradients(self, every: int = 1) -> Iterator[str]:
        for name in [*self.variables.values()][::every]:
            yield f"{name}.grad = None"

    def _replaced(self, event: str) -> Iterator[str]:
        for name in self.variables.values():
            yield f"if {name}.grad is not None:"
            yield f"    {name}.grad = {name}.grad * {REPLACING[event]}"

    def _changes(self, step: int) -> Iterator[str]:
        listed = ", ".join(self.variables.values())
        match self.scenario.step_event(step):
            case "cast" | "cast_before_zero":
                yield f"nn.ParameterList([{listed}]).double()"
            case "move":
                # `to()` itself moves nothing on one device; `_apply` copies what it would move.
                yield f"nn.ParameterList([{listed}])._apply(torch.clone)"
            case _:
                yield from self._frozen(step)

    def frozen_at_first(self) -> Iterator[str]:
        """Yield the lines that freeze parameters before `bind()`."""
        if any(
            step_plan.is_frozen(self.scenario, spec, -1) for spec in self._freezable
        ):
            yield from self._frozen(-1)

    @property
    def _freezable(self) -> list[ParameterSpec]:
        listed = self.scenario.parameters
        return [spec for spec in listed if step_plan.may_freeze(self.scenario, spec)]

    def _frozen(self, step: int) -> Iterator[str]:
        for spec in self._freezable:
            is_frozen = step_plan.is_frozen(self.scenario, spec, step)
            yield f"{self.variables[spec.name]}.requires_grad_({not is_frozen})"

    def _optimizer(self) -> Iterator[str]:
        yield "with torch.no_grad():  # an optimizer clips in place, then updates"
        listed = ", ".join(self.variables.values())
        yield f"    for parameter in [{listed}]:"
        yield "        if parameter.grad is not None:"
        yield f"            local(parameter.grad).mul_({GRADIENT_SCALE})"
        if not self.capabilities.owns_parameters:
            yield "            local(parameter).add_(1)"

    def _micro_batch(
        self, step: int, micro_batch: int, *, is_last: bool
    ) -> Iterator[str]:
        agreed = step_plan.num_agreed_micro_batches(self.scenario, step)
        lines = (
            self._handed_over(step, micro_batch, is_last=is_last)
            if "run_micro_batch" in self.methods
            else self._own_backward(step, micro_batch, self.scenario.backward)
        )
        yield f"# micro-batch {micro_batch} of {agreed}"
        if micro_batch and self.pauses:
            yield "time.sleep(0.5)  # a real forward takes longer than a reduction beside it"
        if self._fails(step, micro_batch):
            yield from ("try:", *_indented(lines), "except InjectedError:", "    pass")
        else:
            yield from lines

    def _fails(self, step: int, micro_batch: int) -> bool:
        last = step_plan.num_agreed_micro_batches(self.scenario, step) - 1
        raises = self.scenario.step_event(step) == "raise_in_backward"
        return raises and micro_batch == last

    def _own_backward(
        self, step: int, micro_batch: int, word: str = PLAIN
    ) -> Iterator[str]:
        """Yield the lines of a forward and its backward, which the script runs itself."""

        def lines(terms: Mapping[str, str]) -> Iterator[str]:
            owned = {n: v for n, v in self.variables.items() if n in terms}
            if word != PLAIN and owned:
                yield f"terms = {{{_pairs(terms)}}}"
                yield f"{word}({_losses('terms', owned)})"
                return
            first, *others = terms.values()
            if not others:
                yield f"{first}.backward()"
                return
            yield f"loss = {first}"
            yield from (f"loss = loss + {each}" for each in others)
            yield "loss.backward()"

        yield from self._on_each_rank(step, micro_batch, lines)

    def _handed_over(
        self, step: int, micro_batch: int, *, is_last: bool
    ) -> Iterator[str]:
        """Yield the lines of a micro-batch that the synchronizer runs."""
        word = self.scenario.backward

        def lines(terms: Mapping[str, str]) -> Iterator[str]:
            if word == PLAIN:
                value, how = " + ".join(terms.values()), ""
            else:
                owned = {n: v for n, v in self.variables.items() if n in terms}
                value = f"{{{_pairs(terms)}}}"
                how = f", run_backward=lambda terms: {word}({_losses('terms', owned)})"
            yield "synchronizer.run_micro_batch("
            yield f"    lambda: {value}, is_last={is_last}{how}"
            yield ")"

        yield from self._on_each_rank(step, micro_batch, lines)

    def _on_each_rank(
        self,
        step: int,
        micro_batch: int,
        lines: Callable[[Mapping[str, str]], Iterator[str]],
    ) -> Iterator[str]:
        """Yield lines made of the terms of a loss; ranks with other terms get other lines."""
        alike: dict[tuple[str, ...], list[int]] = {}
        for rank in range(self.scenario.mesh.num_ranks):
            used = step_plan.used_parameters(self.scenario, rank, step, micro_batch)
            alike.setdefault(tuple(spec.name for spec in used), []).append(rank)
        texts = [
            (ranks, [*lines(self._terms(names, ranks, step, micro_batch))])
            for names, ranks in alike.items()
        ]
        if len(texts) == 1:
            yield from texts[0][1]
            return
        for position, (ranks, text) in enumerate(texts):
            yield f"{'elif' if position else 'if'} rank in {tuple(ranks)}:"
            yield from _indented(text)

    def _terms(
        self, names: tuple[str, ...], ranks: list[int], step: int, micro_batch: int
    ) -> dict[str, str]:
        """Return the terms of a loss as expressions, by the name of their parameter."""
        specs = {spec.name: spec for spec in self.scenario.parameters}
        terms = dict[str, str]()
        for position, name in enumerate(names):
            if self._fails(step, micro_batch) and position == len(names) // 2:
                terms[""] = f"failing_term({_CPU})"
            if not step_plan.is_frozen(self.scenario, specs[name], step):
                terms[name] = self._term(specs[name], ranks, step, micro_batch)
        for spec in self.scenario.parameters:
            if spec.used == "undefined" and spec.requires_grad:
                terms[f"{spec.name}, undefined"] = (
                    f"undefined_gradient({self._part(spec)})"
                )
        if not names and self._fails(step, micro_batch):
            terms[""] = f"failing_term({_CPU})"
        return terms or {"": "torch.zeros((), requires_grad=True)"}

    def _term(
        self, spec: ParameterSpec, ranks: list[int], step: int, micro_batch: int
    ) -> str:
        """Return a term whose gradient is the contribution of this rank and micro-batch."""
        scale = magnitude(self.scenario, spec)
        in_constant = scale if spec.use == PLAIN else 1
        constants = dict[int, torch.Tensor]()
        for rank in ranks:
            at = {"rank": rank, "step": step, "micro_batch": micro_batch}
            constant = contribution(self.scenario, spec, **at)
            constant = with_overflow(constant, self.scenario, spec, **at)
            constants[rank] = constant * in_constant
        weights = tensor_by_rank(constants, spec.dtype)
        if spec.use != PLAIN:
            name = USES[spec.use].__name__
            term = f"{name}({self._part(spec)}, {weights})"
            return term if scale == 1 else f"({term} * {scale})"
        precise = "" if spec.dtype == "float32" else ".float()"
        return f"({self._part(spec)} * {weights}){precise}.sum()"

    def _part(self, spec: ParameterSpec) -> str:
        uses_mesh = self.capabilities.tensors == "dtensor"
        return local_in_graph(spec, self.variables[spec.name], uses_mesh=uses_mesh)


def bucket_text(scenario: Scenario) -> str:
    """Return the bucket cap in MiB, as the subject takes it."""
    cap = scenario.bucket_cap_bytes
    return f"{cap / BYTES_PER_MB}" if cap % BYTES_PER_MB == 0 else f"{cap} / 2**20"


def _pairs(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r}: {text}" for name, text in texts.items())


def _losses(terms: str, variables: Mapping[str, str]) -> str:
    return f"Losses({terms}, {{{_pairs(variables)}}}, one_thread)"


def _indented(lines: Iterator[str] | list[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)
