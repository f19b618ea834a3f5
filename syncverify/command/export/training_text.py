"""The training program of a scenario as lines of a script, up to one moment."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

import torch

from syncverify.command.export.parameters_text import local_in_graph, tensor_by_rank
from syncverify.playing.program import training_program as actions
from syncverify.playing.program.changes import GRADIENT_SCALE
from syncverify.playing.program.graphs.uses import USES
from syncverify.playing.program.rank_program import BYTES_PER_MB
from syncverify.scenario import step_plan
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contributions import contribution, magnitude, with_overflow
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec
from syncverify.subjects.subject_api import REQUIRED_METHODS

_CPU = 'torch.device("cpu")'
# The terms of a loss as expressions, by the name of their parameter.
Terms = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TrainingText:
    """Writes the training program of a scenario; `Reproduction` explains the other fields."""

    scenario: Scenario
    capabilities: Capabilities
    methods: frozenset[str]
    variables: Mapping[str, str]  # of each parameter, by its name
    make: str  # makes a synchronizer, up to its number of backwards
    takes_count: bool
    pauses: bool

    def up_to(self, end: actions.Observe) -> Iterator[str]:
        """Yield the lines up to a moment."""
        program = actions.training_program(self.scenario, takes_count=self.takes_count)
        listed: list[actions.Action | actions.Step] = [*program.start]
        for step in program.steps:
            listed += (step, *step.before, *step.within, *step.after)
        listed += (program.unbind, *program.after_unbind)
        for action in itertools.takewhile(lambda each: each != end, listed):
            yield from self._lines(action)

    def _lines(self, action: actions.Action | actions.Step) -> Iterator[str]:
        match action:
            case actions.Step(number=number):
                yield from ("", f"# step {number}")
            case actions.Make(count=count):
                given = "" if count is None else f", {count}"
                yield f"synchronizer = {self.make}{given})"
            case actions.Call(method="bind") if self.scenario.update == "in_backward":
                yield from self._bound_with_hooks(action)
            case actions.Call():
                yield from self._call(action)
            case actions.Backward():
                is_taken = action.is_last and self.scenario.update == "in_backward"
                if is_taken:
                    yield "taken, is_last = {}, True"
                yield from self._micro_batch(action)
                if is_taken:
                    yield "is_last = False"
            case actions.Evaluate(step=step):
                yield from self._evaluation(step)
            case actions.Recover(call=call):
                yield from self._call(call)
            case actions.Change(kind="freeze", step=step):
                yield from self._frozen(step)
            case actions.Change(kind=kind):
                # `to()` itself moves nothing on one device; `_apply` copies what it would move.
                change = "double()" if kind == "cast" else "_apply(torch.clone)"
                yield f"nn.ParameterList([{', '.join(self.variables.values())}]).{change}"
            case actions.Replace(every=every, first=first, factor=factor):
                for name in [*self.variables.values()][first::every]:
                    yield f"if {name}.grad is not None:"
                    yield f"    {name}.grad = {name}.grad * {factor}"
            case actions.Drop(every=every, first=first):
                for name in [*self.variables.values()][first::every]:
                    yield f"{name}.grad = None"
            case actions.Update():
                yield "with torch.no_grad():  # an optimizer clips in place, then updates"
                yield f"    for parameter in [{', '.join(self.variables.values())}]:"
                yield "        if parameter.grad is not None:"
                yield from (f"            {line}" for line in self._update)
            case actions.PlainBackward(step=step):
                backward = actions.Backward(step, 0, agreed=1)
                yield from self._on_each_rank(backward, self._summed)
            case actions.Observe():
                pass
            case _:
                assert_never(action)

    def _call(self, call: actions.Call) -> Iterator[str]:
        has_it = call.method in self.methods or call.method in REQUIRED_METHODS
        method = call.method if has_it else call.otherwise
        if method is not None:
            yield f"synchronizer.{method}({', '.join(map(str, call.arguments))})"

    def _bound_with_hooks(self, bind: actions.Call) -> Iterator[str]:
        """Yield the lines of a hook that updates parameters inside of backward, and of `bind()`."""
        yield "taken, is_last = {}, False"
        yield ""
        yield "def step(parameter):  # a hook of the user, in the last backward of a step"
        yield "    if is_last and parameter.grad is not None:"
        yield "        taken[parameter] = local(parameter.grad).clone()"
        yield "        with torch.no_grad():"
        yield from (f"            {line}" for line in self._update)
        yield "        parameter.grad = None"
        yield ""
        calls_it = "step_in_backward" in self.methods
        if calls_it:
            yield "synchronizer.step_in_backward(step)"
        yield from self._call(bind)
        if not calls_it:
            for spec in self.scenario.trainable:
                name = self.variables[spec.name]
                yield f"{name}.register_post_accumulate_grad_hook(step)"

    def frozen_at_first(self) -> Iterator[str]:
        """Yield the lines that freeze parameters before `bind()`."""
        freezable = self._freezable
        if any(step_plan.is_frozen(self.scenario, each, -1) for each in freezable):
            yield from self._frozen(-1)

    @property
    def _freezable(self) -> list[ParameterSpec]:
        listed = self.scenario.parameters
        return [spec for spec in listed if step_plan.may_freeze(self.scenario, spec)]

    def _frozen(self, step: int) -> Iterator[str]:
        for spec in self._freezable:
            is_frozen = step_plan.is_frozen(self.scenario, spec, step)
            yield f"{self.variables[spec.name]}.requires_grad_({not is_frozen})"

    @property
    def _update(self) -> list[str]:
        scaled = f"local(parameter.grad).mul_({GRADIENT_SCALE})"
        keeps = self.capabilities.owns_parameters
        return [scaled] if keeps else [scaled, "local(parameter).add_(1)"]

    def _micro_batch(self, backward: actions.Backward) -> Iterator[str]:
        yield f"# micro-batch {backward.micro_batch} of {backward.agreed}"
        if backward.micro_batch and self.pauses:
            yield "time.sleep(0.5)  # a real forward takes longer than a reduction beside it"
        run = self._own_backward
        if "run_micro_batch" in self.methods:
            run = partial(self._handed_over, is_last=backward.is_last)
        lines = self._on_each_rank(backward, run)
        if backward.fails:
            yield from ("try:", *_indented(lines), "except InjectedError:", "    pass")
        else:
            yield from lines

    def _evaluation(self, step: int) -> Iterator[str]:
        """Yield the lines of a forward under `no_grad`, in the synchronizer's way if it has one."""
        plain = tuple(replace(spec, use=PLAIN) for spec in self.scenario.parameters)
        text = replace(self, scenario=replace(self.scenario, parameters=plain))
        start, end = "", ""
        if "evaluate" in self.methods:
            start, end = "synchronizer.evaluate(lambda: ", ")"

        def lines(terms: Terms) -> Iterator[str]:
            yield "with torch.no_grad():"
            yield f"    {start}{' + '.join(terms.values())}{end}"

        yield from text._on_each_rank(actions.Backward(step, 0, agreed=1), lines)  # noqa: SLF001

    def _run(self, terms: Terms) -> str:
        """Return the call that runs the backward of a scenario with another word than `plain`."""
        word = self.scenario.backward
        marks = word == "split_by_hand" and "mark_ready" in self.methods
        argument = ", synchronizer.mark_ready" if marks else ""
        variables = {n: v for n, v in self.variables.items() if n in terms}
        return f"{word}(Losses(terms, {{{_pairs(variables)}}}, one_thread{argument}))"

    def _own_backward(self, terms: Terms) -> Iterator[str]:
        """Yield the lines of a forward and its backward, which the script runs itself."""
        if self.scenario.backward == PLAIN or terms.keys().isdisjoint(self.variables):
            yield from self._summed(terms)
        else:
            yield f"terms = {{{_pairs(terms)}}}"
            yield self._run(terms)

    def _summed(self, terms: Terms) -> Iterator[str]:
        first, *others = terms.values()
        if not others:
            yield f"{first}.backward()"
            return
        yield f"loss = {first}"
        yield from (f"loss = loss + {each}" for each in others)
        yield "loss.backward()"

    def _handed_over(self, terms: Terms, *, is_last: bool) -> Iterator[str]:
        """Yield the lines of a micro-batch that the synchronizer runs."""
        value, how = " + ".join(terms.values()), ""
        if self.scenario.backward != PLAIN:
            value = f"{{{_pairs(terms)}}}"
            how = f", run_backward=lambda terms: {self._run(terms)}"
        yield "synchronizer.run_micro_batch("
        yield f"    lambda: {value}, is_last={is_last}{how}"
        yield ")"

    def _on_each_rank(
        self, backward: actions.Backward, lines: Callable[[Terms], Iterator[str]]
    ) -> Iterator[str]:
        """Yield lines made of the terms of a loss; ranks with different terms get different lines."""
        alike: dict[tuple[str, ...], list[int]] = {}
        for rank in range(self.scenario.mesh.num_ranks):
            used = step_plan.used_parameters(
                self.scenario, rank, backward.step, backward.micro_batch
            )
            alike.setdefault(tuple(spec.name for spec in used), []).append(rank)
        word = "if"
        for names, ranks in alike.items():
            text = lines(self._terms(names, ranks, backward))
            if len(alike) == 1:
                yield from text
            else:
                yield f"{word} rank in {tuple(ranks)}:"
                yield from _indented(text)
            word = "elif"

    def _terms(
        self, names: tuple[str, ...], ranks: list[int], backward: actions.Backward
    ) -> dict[str, str]:
        specs = {spec.name: spec for spec in self.scenario.parameters}
        terms = dict[str, str]()
        for position, name in enumerate(names):
            if backward.fails and position == len(names) // 2:
                terms[""] = f"failing_term({_CPU})"
            if not step_plan.is_frozen(self.scenario, specs[name], backward.step):
                terms[name] = self._term(specs[name], ranks, backward)
        for spec in self.scenario.parameters:
            if spec.used == "undefined" and spec.requires_grad:
                term = f"undefined_gradient({self._part(spec)})"
                terms[f"{spec.name}, undefined"] = term
        if not names and backward.fails:
            terms[""] = f"failing_term({_CPU})"
        return terms or {"": "torch.zeros((), requires_grad=True)"}

    def _term(
        self, spec: ParameterSpec, ranks: list[int], backward: actions.Backward
    ) -> str:
        """Return a term whose gradient is the contribution of this rank and micro-batch."""
        scale = magnitude(self.scenario, spec)
        in_constant = scale if spec.use == PLAIN else 1
        constants = dict[int, torch.Tensor]()
        for rank in ranks:
            step, micro_batch = backward.step, backward.micro_batch
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


def _indented(lines: Iterator[str] | list[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)
