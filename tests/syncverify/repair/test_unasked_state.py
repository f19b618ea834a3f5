"""Changes that ask a state which the code does not ask, as text."""

import ast
import textwrap

import pytest

from syncverify.repair.source_edit import Source
from syncverify.repair.unasked_state import unasked_state

COUNTS = """
class A:
    def set_required_accumulations(self, count):
        self.required = count

    def f(self, x):
        {line}
"""


def changed(text: str) -> list[str]:
    """Return the new lines of each change in the function `f`, joined."""
    text = textwrap.dedent(text)
    file = Source("a.py", tuple(text.splitlines()), ast.parse(text))
    (function,) = (
        node
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef) and node.name == "f"
    )
    return [
        "; ".join(line.strip() for line in each.lines)
        for each in unasked_state(file, function)
    ]


@pytest.mark.parametrize(
    ("line", "candidates"),
    [
        ("return x.n == len(x.p)", ["return x.n == len(x.p) * self.required"]),
        ("return x.n == len(x.p) - 1", ["return x.n == (len(x.p) - 1) * self.required"]),
        (
            "if x.n % len(x.p) == 0: x.go()",
            [
                "if x.n == len(x.p) * self.required: x.go()",
                "if x.n == len(x.p): x.go()",
            ],
        ),
        ("return x.n == len(x.p) * self.required", []),
        ("return x.n < len(x.p)", []),
        ("return x.n == 1", []),
    ],
)  # fmt: skip
def test_a_count_is_compared_with_the_announced_number(
    line: str, candidates: list[str]
) -> None:
    assert changed(COUNTS.format(line=line)) == candidates


def test_a_flag_that_nothing_asks_is_asked() -> None:
    text = """
    class A:
        def __init__(self):
            self.is_on = self.is_told = True

        def off(self):
            was, self.is_on = self.is_on, False

        def f(self, x):
            \"\"\"Count.\"\"\"
            if x is None:
                return
            x.n += 1
    """
    assert changed(text) == [
        "if not self.is_on or x is None:",
        "if self.is_on or x is None:",
        "if not self.is_on:; return",
    ]
    assert not changed(text.replace("x is None", "x is None and self.is_on"))


@pytest.mark.parametrize(
    ("counting", "candidates"),
    [
        ("x.n -= 1", ["if x.n == 0:"]),
        ("x.n += 1", ["if x.n == len(x.p):"]),
        ("x.n += size", []),
    ],
)
def test_a_counter_that_nothing_asks_is_asked(
    counting: str, candidates: list[str]
) -> None:
    text = f"""
    def f(x, p):
        {counting}
        if p is x.p[-1]:
            go()
    """
    assert changed(text) == candidates
    assert not changed(text.replace("go()", "return x.n > 0"))


@pytest.mark.parametrize(
    ("saving", "end"),
    [
        ("was, self.is_on = self.is_on, False", "pass"),
        ("was = self.is_on; self.is_on = False", "go()"),
    ],
)
def test_a_saved_value_is_set_back(saving: str, end: str) -> None:
    text = f"""
    class A:
        def f(self):
            {saving}
            try:
                yield
            finally:
                {end}
    """
    assert set(changed(text)) == {"self.is_on = was"}
    assert not changed(text.replace(end, "self.is_on = was"))


def test_a_key_gets_what_a_method_says_of_the_element() -> None:
    text = """
    class A:
        def f(self, p):
            key = (1, dtype(p))
            self.filling.setdefault(key, []).append(p)

        def group_of(self, p):
            return p.group

        def send(self, p):
            go(p)
    """
    assert changed(text) == ["key = (1, dtype(p), self.group_of(p))"]
    assert not changed(text.replace("dtype(p)", "self.group_of(p)"))
    assert not changed(text.replace("setdefault(key", "setdefault(p"))


def test_the_number_of_an_axis_gives_way_to_an_argument() -> None:
    assert changed("def f(self, axes):\n    return mesh.get_group(0)") == [
        "return mesh.get_group(axes)",
        "return mesh.get_group(axes[0])",
    ]
    assert not changed("def f(self, axes):\n    return mesh.get_group(axes[1])")
