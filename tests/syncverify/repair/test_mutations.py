"""Small changes of a function, as text."""

import ast
import textwrap

import pytest

from syncverify.repair.mutations import Names, mutations
from syncverify.repair.source_edit import Edit, Source


def source(text: str) -> Source:
    text = textwrap.dedent(text)
    return Source("a.py", tuple(text.splitlines()), ast.parse(text))


def changed(text: str) -> list[str]:
    """Return the body of the function `f` after each change, in one line."""
    file = source(text)
    (function,) = (
        node
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef) and node.name == "f"
    )
    return [
        "; ".join(line.strip() for line in each.lines)
        for each in mutations(file, function, Names.of([file.tree]))
    ]


COMPARED = """
class A:
    def f(self):
        return self.n == 1

    def g(self):
        return self.m == self.required
"""
SENDS = """
def f(self):
    self.n += 1
    for p in q:
        p.register_full_hook(g)
    if a:
        dist.broadcast(b, 0)
"""
OVERRIDE = """
class A(Base):
    def f(self, a, *, b):
        {}
"""
CALL = "Base.f(self, a, b=b)"
MAPPING = "self.seen.get(name, 0) + 1"


def f(*lines: str) -> str:
    """Return a function with these lines."""
    return "\n    ".join(("def f(self):", *lines))


@pytest.mark.parametrize(
    ("text", "candidates"),
    [
        (f("return a if b else c"), ["return c", "return a"]),
        (f("return a.b() * c"), ["return a.b()", "return c"]),
        (f("return a.b(c)[:1]"), ["return a.b(c)"]),
        (
            COMPARED,
            ["return self.n == self.m", "return self.n == self.required", "return self.n == 0"],
        ),
        (f("if a:", "    b()", "return c"), ["b()", "", "pass", "", "pass"]),
        (
            f("s.wait_stream(torch.cuda.default_stream())"),
            ["s.wait_stream(torch.cuda.current_stream())", "", "pass"],
        ),
        (f('"""Say."""', "return a"), []),
        (SENDS, ["dist.broadcast(b, 0)"]),
        (OVERRIDE.format("pass"), [f"return {CALL}"]),
        (OVERRIDE.format("return a"), [f"return {CALL}"]),
        (OVERRIDE.format("self.n += 1"), [CALL, CALL]),
        (OVERRIDE.format("self.n += super().f(a, b=b)"), []),
        (OVERRIDE.format("pass").replace("(Base)", ""), []),
        # A counter or a flag is never frozen.
        (f("self.n = getattr(self, 'n', 0) + 1"), ["self.n += getattr(self, 'n', 0) + 1"]),
        (f("self.n = 1 + self.n"), ["self.n += 1 + self.n"]),
        (f("self.n = (self.n + 1) % 2"), ["self.n = self.n + 1", "self.n += (self.n + 1) % 2"]),
        (f("self.n = min(self.n + 1, 4)"), ["self.n = self.n + 1"]),
        (
            f(f"self.seen[name] = {MAPPING}"),
            [f"self.seen[name] += {MAPPING}", f"self.seen[name].copy_({MAPPING})"],
        ),
        (f("self.turn = not self.turn"), []),
        # A number that is rounded up is not rounded again.
        (f("return -(-a // b)"), ["return 0", "return --a", "return -b", "return -(0 // b)"]),
    ],
)  # fmt: skip
def test_a_function_has_these_candidates(text: str, candidates: list[str]) -> None:
    assert changed(text) == candidates


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (f("for p in set(q):", "    g(p)"), ["for p in q:", "for p in reversed(q):"]),
        (f("if a:", "    b()", "else:", "    # As before.", "    c()"), ["c()", "b()"]),
        (f("a()", "b(", "    c)", "return d"), ["b(; c); a()"]),
        (f("n = len(self.buckets) // 2"), ["n = -(-len(self.buckets) // 2)"]),
        (f("n = (a + b) // self.size"), ["n = -(-(a + b) // self.size)"]),
    ],
)
def test_likely_candidates_come_first(text: str, first: list[str]) -> None:
    assert changed(text)[: len(first)] == first


LIMITED = f("if used > self.cap_bytes:", "    cut()")


@pytest.mark.parametrize(
    ("text", "candidate", "is_one"),
    [
        (f("for p in q:", "    if p.n > self.cap_bytes:", "        g(p)"), "if p.n >= self.cap_bytes:", False),
        (f("return x.count(True) == 1"), "return x.count(True) == len(x)", True),
        (LIMITED, "cut()", False),
        (LIMITED.replace("cut()", "self.reduce(b)"), "self.reduce(b)", True),
        (f("self.grad = self.grad / self.size"), "", True),
    ],
)  # fmt: skip
def test_a_candidate_depends_on_the_rest(
    text: str, candidate: str, *, is_one: bool
) -> None:
    assert (candidate in changed(text)) is is_one


def test_a_long_block_stays() -> None:
    def left_out(num_lines: int) -> int:
        lines = [f"    x[{index}] = y" for index in range(num_lines)]
        return changed(f("for a in b:", *lines, "return c")).count("")

    assert (left_out(5), left_out(6)) == (6, 6)  # the loop too, and its lines alone


@pytest.mark.parametrize(("num_lines", "may_go"), [(4, True), (5, False)])
def test_a_long_case_does_not_give_way(num_lines: int, *, may_go: bool) -> None:
    lines = [f"    x[{index}] = y" for index in range(num_lines)]
    text = f("if a:", *lines, "else:", "    z()", "return c")
    assert ("z()" in changed(text)) == may_go


def test_lines_are_put_before_after_and_in_the_place_of_a_statement() -> None:
    file = source("def f():\n    a()\n    b()\n")
    node = file.statement_at(2)
    assert node is not None
    texts = [
        file.edited(make(file.path, node, "new()"))
        for make in (Edit.before, Edit.after, Edit.instead)
    ]
    assert texts == [
        "def f():\n    new()\n    a()\n    b()\n",
        "def f():\n    a()\n    new()\n    b()\n",
        "def f():\n    new()\n    b()\n",
    ]
