"""A defect stands once: tests import a defect of the bug bank and do not repeat it."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from syncverify import bugbank

BANK = Path(bugbank.__file__).parent
PLANTED = Path(__file__).parents[1] / "quality" / "planted"


class WhatItDoes(ast.NodeTransformer):
    """Drops text and annotations, which do not change the behaviour of a class."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.body = self.acting(node.body)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body, node.decorator_list, node.returns = self.acting(node.body), [], None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        return node

    def acting(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(each) for each in body if not self.is_idle(each)]

    def is_idle(self, node: ast.stmt) -> bool:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return is_text or isinstance(node, ast.Pass)


def classes(source: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each class, and its code without text and annotations."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            name, does = node.name, WhatItDoes().visit(node)
            does.name = "_"
            yield name, ast.dump(does)


def twice(sources: dict[str, str]) -> list[list[str]]:
    """List the places of classes that do the same."""
    places = defaultdict(list)
    for place, source in sources.items():
        for name, does in classes(source):
            places[does].append(f"{place}: {name}")
    return [found for found in places.values() if len(found) > 1]


def test_no_defect_stands_twice() -> None:
    files = [*BANK.rglob("*.py"), *PLANTED.glob("*.py")]
    assert files
    assert twice({file.stem: file.read_text() for file in files}) == []


def test_a_copy_is_found() -> None:
    bank = '''
class NeverJoins(SideStreams):
    """No stream waits."""

    @override
    def join(self) -> None:
        """Do nothing."""
'''
    planted = "class Forgets(SideStreams):\n    def join(self):\n        pass\n"
    assert twice({"bank": bank, "planted": planted}) == [
        ["bank: NeverJoins", "planted: Forgets"]
    ]
    assert twice({"bank": bank, "planted": planted.replace("join", "fork")}) == []
