"""A test fails where the elements are missing of which it asserts something.

A loop of assertions and `all()` pass over nothing. So their iterable has elements by its form, or
an assertion outside of them mentions it. `{f(each) for each in found} == {True}` needs no second
assertion.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Calls that keep the number of elements of their arguments.
SAME_NUMBER = {"dict", "enumerate", "list", "map", "reversed", "set", "sorted", "tuple", "zip"}  # fmt: skip
# Calls and attributes with an element for each rank, step or parameter: there is one at least.
OF_EACH = {"named_parameters", "on_ranks", "parameters", "play", "range", "ranks", "recorders", "run"}  # fmt: skip
VIEWS = {"items", "keys", "values"}


def has_elements(node: ast.expr, known: set[str]) -> bool:
    """Tell whether an expression has elements by its form, or by names."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return any(
                not isinstance(each, ast.Starred) or has_elements(each.value, known)
                for each in parts
            )
        case ast.Dict(keys=keys):
            return bool(keys)
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name(id=name):
            return name in known
        case ast.BinOp(left=left, right=right):
            return has_elements(left, known) or has_elements(right, known)
        case ast.Attribute(attr=name):
            return name in OF_EACH
        case ast.Call():
            return call_has_elements(node, known)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return all(
                not each.ifs and has_elements(each.iter, known)
                for each in node.generators
            )
    return False


def call_has_elements(call: ast.Call, known: set[str]) -> bool:
    """Tell whether the result of a call has elements."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in OF_EACH:
            return True
        case ast.Attribute(value=value, attr=name) if name in VIEWS:
            return has_elements(value, known)
        case ast.Attribute(attr="product"):
            return all(has_elements(each, known) for each in call.args)
        case ast.Name(id=name) if name in SAME_NUMBER:
            # All arguments of a strict `zip` have as many; a function in `map` is unknown.
            return any(has_elements(each, known) for each in call.args)
    return False


def known_names(statements: Iterable[ast.AST], known: set[str]) -> set[str]:
    """Return names with those that these statements give something with elements."""
    found = {*known}
    for each in statements:
        match each:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if has_elements(value, found):
                found.add(name)
    return found


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def checks(function: ast.AST) -> list[ast.AST]:
    """Return assertions, and assignments to a number of names: `(one,) = found`."""
    return [
        each
        for each in ast.walk(function)
        if isinstance(each, ast.Assert)
        or (isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Tuple))
    ]


def repeated(function: ast.AST) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """Yield each loop of assertions and assertion of `all()`, with the iterable."""
    for node in ast.walk(function):
        match node:
            case ast.For(iter=elements) if any(
                isinstance(each, ast.Assert) for each in ast.walk(node)
            ):
                yield node, elements
            case ast.Assert():
                for call in ast.walk(node.test):
                    match call:
                        case ast.Call(
                            func=ast.Name(id="all"),
                            args=[ast.GeneratorExp(generators=[first, *_])],
                        ):
                            yield node, first.iter


def cases_of(function: ast.FunctionDef) -> set[str]:
    """Return the names that `parametrize` gives: pytest refuses a list without cases."""
    return {
        name.strip()
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and decorator.args
        for text in ast.walk(decorator.args[0])
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
        for name in text.value.split(",")
    }


def is_drawn(function: ast.FunctionDef) -> bool:
    """Tell whether Hypothesis draws the arguments: some of many examples have elements."""
    return any("given" in names_in(each) for each in function.decorator_list)


def vacuous(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each test with an assertion that may assert nothing."""
    module = ast.parse(source)
    for test in module.body:
        if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
            continue
        if is_drawn(test) or not (statements := [*repeated(test)]):
            continue
        constants = known_names(module.body, {*compared_constants(module)})
        known = known_names(ast.walk(test), constants | cases_of(test))
        for statement, elements in statements:
            inside = {*ast.walk(statement)}
            outside = [each for each in checks(test) if each not in inside]
            mentioned = set[str]().union(*map(names_in, outside))
            if not has_elements(elements, known) and not names_in(elements) & mentioned:
                yield statement.lineno, test.name


def compared_constants(module: ast.Module) -> Iterator[str]:
    """Yield the constants of which an assertion of the file says something."""
    for check in checks(module):
        yield from (name for name in names_in(check) if name.isupper())


@pytest.mark.long
def test_no_test_passes_where_there_is_nothing_to_assert() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name} may assert nothing"
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for line, name in vacuous(file.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "body",
    [
        "for each in found(): assert each",
        "assert all(each for each in found())",
        "listed = found()\n for each in listed: assert each",
        "for each in [e for e in (1, 2) if e > x]: assert each",
        "for each in (1, 2):\n  for e in each.found: assert e",
    ],
)
def test_planted_mistake_is_found(body: str) -> None:
    assert len([*vacuous(f"def test_it():\n {body}")]) == 1


@pytest.mark.parametrize(
    "body",
    [
        "for each in (1, 2): assert each",
        "for each in range(n): assert each",
        "listed = found()\n assert listed\n for each in listed: assert each",
        "(one,) = listed = found()\n for each in listed: assert each",
        "assert {each for each in found()} == {1}",
        "for one, two in zip(found(), [1, 2], strict=True): assert one == two",
    ],
)
def test_assertion_that_has_elements_is_fine(body: str) -> None:
    assert [*vacuous(f"def test_it():\n {body}")] == []
