"""Hints and meanings of causes stand in one table: `syncverify/judge/causes/`."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import syncverify
from syncverify.judge.causes import CAUSES

TABLE = "causes"
NAMES = ("hint", "remed", "advice", "change", "mistake")
FEWEST_WORDS = 4


def second_table(source: str) -> list[str]:
    """Return the sentences in rows, in variables of hints, and that functions of hints return."""
    return [
        inner.value
        for node in ast.walk(ast.parse(source))
        for name, value in named_values(node)
        if any(each in name.lower() for each in NAMES)
        for inner in ast.walk(value)
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
        if len(inner.value.split()) >= FEWEST_WORDS
    ]


def named_values(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.Call(func=ast.Name(id="Mistake" | "Words")):
            yield "mistake", node
        case ast.FunctionDef(name=name):
            yield from ((name, e) for e in ast.walk(node) if isinstance(e, ast.Return))


def test_no_hint_stands_outside_of_the_table() -> None:
    (package,) = syncverify.__path__
    found = {
        file.name: texts
        for folder in ("judge", "report")
        for file in Path(package, folder).rglob("*.py")
        if file.parent.name != TABLE and (texts := second_table(file.read_text()))
    }
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        'HINTS: Final = {"late": "wait for it before you read"}',
        '_CHANGE = "add the squares of all ranks"',
        'Mistake("it is read too early", "wait")',
        'def hint_of(cause): return f"wait for all of them: {cause}"',
    ],
)
def test_a_hint_outside_of_the_table_is_seen(source: str) -> None:
    assert second_table(source)


def unnamed(causes: Iterable[str], source: str) -> list[str]:
    """Return the causes that code names neither by their text nor by a class of that name."""
    return [
        cause
        for cause in causes
        if f'"{cause}"' not in source
        and f"class {cause.title().replace('_', '')}(" not in source
    ]


def test_each_row_is_a_cause_that_code_gives() -> None:
    (package,) = syncverify.__path__
    files = [e for e in Path(package).rglob("*.py") if e.parent.name != TABLE]
    assert not unnamed(CAUSES, "".join(file.read_text() for file in files))


def test_a_row_that_nothing_gives_is_seen() -> None:
    source = 'finding("read_early")\nclass SentTwice(Cause): ...\n'
    assert unnamed(["read_early", "sent_twice", "forgotten"], source) == ["forgotten"]
