"""A violation of any cause has a hint, found in the source of the judge."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import syncverify.judge
from syncverify.judge.causes import CAUSES
from syncverify.judge.causes.of_trainings import OF_TRAININGS
from syncverify.judge.evidence import Evidence
from syncverify.judge.violation import Violation
from syncverify.report import hints
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.trace.run import FaultKind, FormCause

# Functions of the judge that take a cause as an argument.
TAKE_CAUSE = {
    *("Cause", "Violation", "finding", "_both", "_finding", "_findings", "_Difference"),
}
# Functions that return a cause, and variables that hold one.
NAMED = {"_cause", "cause", "kind"}


def causes(source: str) -> set[str]:
    """Return the causes that a module spells out."""
    return {
        word
        for node in ast.walk(ast.parse(source))
        for value in places_of_causes(node)
        for word in words(value)
    }


def places_of_causes(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a node that may be a cause."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=args) if name in TAKE_CAUSE:
            yield from args
        case ast.keyword(arg="cause", value=value):
            yield value
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in NAMED:
            yield value
        case ast.FunctionDef(name=name) if name in NAMED:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    yield inner.value


def words(value: ast.expr) -> Iterator[str]:
    """Yield the words of a conditional expression or constant; sentences are no causes."""
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*words(body), *words(orelse))
        case ast.Constant(value=str(text)) if text.isidentifier():
            yield text


def causes_of_the_judge() -> set[str]:
    (folder,) = syncverify.judge.__path__
    found = {*get_args(FaultKind), *get_args(FormCause)}
    for file in Path(folder).rglob("*.py"):
        found |= causes(file.read_text("utf-8"))
    return found


def test_each_cause_has_a_hint_and_each_hint_a_cause() -> None:
    """A cause without a hint is a KeyError while the report is printed."""
    assert causes_of_the_judge() | {*OF_TRAININGS} == {*CAUSES}


def test_an_exception_of_the_subject_has_the_hint_of_all_exceptions() -> None:
    assert hints.hint_of("raised_ValueError") == hints.hint_of("raised")


FROZEN = ParameterSpec("p1", (2,), ("R",), requires_grad=False)


@pytest.mark.parametrize(
    ("cause", "others", "is_reported"),
    [
        ("not_reduced", (FROZEN,), True),
        ("not_reduced", (replace(FROZEN, group=1),), False),
        ("not_reduced", (replace(FROZEN, requires_grad=True),), False),
        ("reduced_early", (FROZEN,), False),
    ],
    ids=["frozen", "in_another_group", "trained", "of_another_cause"],
)
def test_a_frozen_parameter_beside_one_that_is_not_reduced_is_reported(
    cause: str, others: tuple[ParameterSpec, ...], *, is_reported: bool
) -> None:
    parameters = (ParameterSpec("p0", (2,), ("R",)), *others)
    scenario = Scenario(MeshSpec((2,), ("dp",)), parameters, (1,), 1 << 20)
    violation = Violation("gradient_equals_reference", cause, "", parameters=("p0",))
    advice = hints.advice(FoundViolation(violation, scenario))
    addition = advice.removeprefix(hints.hint_of(cause))
    assert bool(addition) == is_reported
    assert ("count only parameters that require one" in advice) == is_reported


@pytest.mark.parametrize(
    ("accumulations", "part"),
    [
        ((2, 2), "look for a counter, or a number of micro-batches, that is not reset"),
        (
            (1, 2),
            "step 1 has 2 micro-batches, and the step before had 1: look at what set_",
        ),
    ],
)
def test_the_hint_names_the_count_that_changed(
    accumulations: tuple[int, ...], part: str
) -> None:
    mesh = MeshSpec((2,), ("dp",))
    specs = (ParameterSpec("p0", (), ("R",)),)
    violation = Violation("a property", "reduced_early", "", evidence=Evidence(step=1))
    scenario = Scenario(mesh, specs, accumulations, 64)
    entry = FoundViolation(violation, scenario, is_smallest=True)
    assert part in hints.advice(entry)
