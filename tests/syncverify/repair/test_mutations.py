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


def test_a_choice_gives_way_to_either_side() -> None:
    assert changed("def f(self):\n    return a if b else c") == ["return c", "return a"]


def test_a_product_gives_way_to_a_factor() -> None:
    assert changed("def f(self):\n    return a.b() * c") == ["return a.b()", "return c"]


def test_a_part_gives_way_to_the_whole() -> None:
    assert changed("def f(self):\n    return a.b(c)[:1]") == ["return a.b(c)"]


def test_a_compared_number_gives_way_to_what_others_compare() -> None:
    text = """
    class A:
        def f(self):
            return self.n == 1

        def g(self):
            return self.m == self.required
    """
    assert changed(text) == [
        "return self.n == self.m",
        "return self.n == self.required",
        "return self.n == 0",
    ]


def test_a_loop_over_a_set_goes_by_order_whatever_its_block_says() -> None:
    text = "def f(self):\n    for p in set(q):\n        if p.n > self.cap_bytes:\n            g(p)"
    assert changed(text)[:2] == ["for p in q:", "for p in reversed(q):"]
    assert "if p.n >= self.cap_bytes:" not in changed(text)


def test_a_statement_is_left_out_with_its_block() -> None:
    text = "def f(self):\n    if a:\n        b()\n    return c"
    assert changed(text) == ["b()", "", "pass", "", "pass"]


def test_a_long_block_stays() -> None:
    def left_out(num_lines: int) -> int:
        lines = "".join(f"        x[{index}] = y\n" for index in range(num_lines))
        return changed(f"def f(self):\n    for a in b:\n{lines}    return c").count("")

    assert (left_out(5), left_out(6)) == (6, 6)  # the loop too, and its lines alone


@pytest.mark.parametrize(("num_lines", "may_go"), [(4, True), (5, False)])
def test_a_long_case_does_not_give_way(num_lines: int, may_go: bool) -> None:  # noqa: FBT001
    lines = "".join(f"        x[{index}] = y\n" for index in range(num_lines))
    text = f"def f(self):\n    if a:\n{lines}    else:\n        z()\n    return c"
    assert ("z()" in changed(text)) == may_go


def test_the_default_stream_gives_way_to_the_current_one() -> None:
    assert changed("def f(self):\n    s.wait_stream(torch.cuda.default_stream())") == [
        "s.wait_stream(torch.cuda.current_stream())",
        "",
        "pass",
    ]


def test_a_docstring_stays() -> None:
    assert changed('def f(self):\n    """Say."""\n    return a') == []


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


def test_what_counts_sends_or_registers_stays() -> None:
    text = """
    def f(self):
        self.n += 1
        for p in q:
            p.register_full_hook(g)
        if a:
            dist.broadcast(b, 0)
    """
    assert changed(text) == ["dist.broadcast(b, 0)"]


def test_a_count_is_compared_with_the_length() -> None:
    assert "return x.count(True) == len(x)" in changed(
        "def f(self):\n    return x.count(True) == 1"
    )


def test_each_case_takes_the_place_of_all() -> None:
    text = "def f(self):\n    if a:\n        b()\n    else:\n        # As before.\n        c()"
    assert changed(text)[:2] == ["c()", "b()"]


def test_a_limit_stays_where_its_case_sends_nothing() -> None:
    text = """
    def f(self):
        if used > self.cap_bytes:
            cut()
    """
    assert "cut()" not in changed(text)
    assert "self.reduce(b)" in changed(text.replace("cut()", "self.reduce(b)"))


def test_neighbours_change_places() -> None:
    text = "def f(self):\n    a()\n    b(\n        c)\n    return d"
    assert changed(text)[0] == "b(; c); a()"


OVERRIDE = """
class A(Base):
    def f(self, a, *, b):
        {}
"""


def test_an_empty_override_asks_its_base() -> None:
    assert changed(OVERRIDE.format("pass")) == ["return Base.f(self, a, b=b)"]
    assert changed(OVERRIDE.format("return a")) == ["return Base.f(self, a, b=b)"]


def test_an_override_calls_its_base_before_its_own_lines_or_after_them() -> None:
    call = "Base.f(self, a, b=b)"
    assert changed(OVERRIDE.format("self.n += 1")) == [call, call]


def test_an_override_that_calls_its_base_needs_no_call() -> None:
    assert changed(OVERRIDE.format("self.n += super().f(a, b=b)")) == []


def test_a_method_of_a_class_without_a_base_has_none_to_ask() -> None:
    assert changed(OVERRIDE.format("pass").replace("(Base)", "")) == []


@pytest.mark.parametrize(
    ("update", "others"),
    [
        (
            "self.n = getattr(self, 'n', 0) + 1",
            ["self.n += getattr(self, 'n', 0) + 1"],
        ),
        ("self.n = 1 + self.n", ["self.n += 1 + self.n"]),
        ("self.n = self.n - 1", ["self.n += self.n - 1"]),
        (
            "self.n = (self.n + 1) % 2",
            ["self.n = self.n + 1", "self.n += (self.n + 1) % 2"],
        ),
        ("self.n = min(self.n + 1, 4)", ["self.n = self.n + 1"]),
    ],
)
def test_a_counter_is_never_frozen(update: str, others: list[str]) -> None:
    assert changed(f"def f(self):\n    {update}") == others


def test_a_count_in_a_mapping_is_never_frozen() -> None:
    counts = "self.seen[name] = self.seen.get(name, 0) + 1"
    assert changed(f"def f(self):\n    {counts}") == [
        "self.seen[name] += self.seen.get(name, 0) + 1",
        "self.seen[name].copy_(self.seen.get(name, 0) + 1)",
    ]


def test_a_flag_that_turns_is_never_frozen() -> None:
    assert changed("def f(self):\n    self.turn = not self.turn") == []


def test_an_assignment_that_counts_nothing_may_go() -> None:
    assert "" in changed("def f(self):\n    self.grad = self.grad / self.size")


@pytest.mark.parametrize(
    ("floor", "ceiling"),
    [
        ("len(self.buckets) // 2", "-(-len(self.buckets) // 2)"),
        ("(a + b) // self.size", "-(-(a + b) // self.size)"),
    ],
)
def test_a_number_that_is_rounded_down_is_first_rounded_up(
    floor: str, ceiling: str
) -> None:
    first, *_ = changed(f"def f(self):\n    n = {floor}")
    assert first == f"n = {ceiling}"


def test_a_number_that_is_rounded_up_is_not_rounded_again() -> None:
    assert changed("def f(self):\n    return -(-a // b)") == [
        "return 0",
        "return --a",
        "return -b",
        "return -(0 // b)",
    ]
