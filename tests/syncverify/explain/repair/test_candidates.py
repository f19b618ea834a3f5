"""Small changes of a file that may be fixes, as text."""

import ast
import importlib
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from syncverify.explain.repair.missing_lines import missing_calls
from syncverify.explain.repair.mutations import mutations
from syncverify.explain.repair.rewrites import Names, rewrites
from syncverify.explain.repair.source_edit import (
    Edit,
    LiveFile,
    NotEditableError,
    Source,
)
from syncverify.explain.repair.unasked_state import unasked_state


def source(text: str) -> Source:
    text = textwrap.dedent(text)
    return Source("a.py", tuple(text.splitlines()), ast.parse(text))


def function_f(file: Source) -> ast.FunctionDef:
    (function,) = (
        node
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef) and node.name == "f"
    )
    return function


def joined(edits: Iterable[Edit]) -> list[str]:
    """Return the new lines of each change in one line."""
    return ["; ".join(line.strip() for line in each.lines) for each in edits]


def changed(text: str) -> list[str]:
    file = source(text)
    return joined(mutations(file, function_f(file), Names.of([file.tree])))


def asked(text: str) -> list[str]:
    """Return the changes of `f` that ask a state which the code does not ask."""
    file = source(text)
    return joined(unasked_state(file, function_f(file)))


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
    return "\n    ".join(("def f(self):", *lines))


@pytest.mark.parametrize(
    ("text", "candidates"),
    [
        (f("return a if b else c"), ["return c", "return a"]),
        (f("return a.b() * c"), ["return a.b()", "return c"]),
        (f("return a.b(c)[:1]"), ["return a.b(c)"]),
        (
            COMPARED, ["return self.n == self.m", "return self.n == self.required",
            "return self.n == 0"]),
        (f("if a:", "    b()", "return c"), ["b()", "", "pass", "", "pass"]),
        (f("s.wait_stream(torch.cuda.default_stream())"),
            ["s.wait_stream(torch.cuda.current_stream())", "", "pass"]),
        (f('"""Say."""', "return a"), []),
        (SENDS, ["dist.broadcast(b, 0)"]),
        (OVERRIDE.format("pass"), [f"return {CALL}"]),
        (OVERRIDE.format("self.n += 1"), [CALL, CALL]),
        (OVERRIDE.format("self.n += super().f(a, b=b)"), []),
        (f("self.n = getattr(self, 'n', 0) + 1"), ["self.n += getattr(self, 'n', 0) + 1"]),
        (f(f"self.seen[name] = {MAPPING}"),
            [f"self.seen[name] += {MAPPING}", f"self.seen[name].copy_({MAPPING})"]),
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


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("a < b", "a <= b"),
        ("not a", "a"),
        ("x.copy_(y)", "x.add_(y)"),
        ("x.copy_(y)", "y.copy_(x)"),
        ("x[0]", "x[-1]"),
        ("x[-1]", "x[0]"),
        ("dist.ReduceOp.MAX", "dist.ReduceOp.SUM"),
        ("dist.ReduceOp.SUM", "dist.ReduceOp.AVG"),
        ("dist.reduce(x, 0, group=g)", "dist.all_reduce(x, group=g)"),
        (
            "dist.all_reduce(x, group=g)",
            "dist.all_reduce(x, op=dist.ReduceOp.AVG, group=g)",
        ),
        ("torch.cuda.device_count()", "dist.get_world_size()"),
        ("lambda p: self.f(bucket, p)", "lambda p, bucket=bucket: self.f(bucket, p)"),
    ],
)
def test_a_slip_has_its_candidate(wrong: str, right: str) -> None:
    inner = ast.parse(wrong, mode="eval").body
    assert right in [ast.unparse(each) for each in rewrites(inner)]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("start = part.numel()", ["start += part.numel()"]),
        ("start += size", ["start = size"]),
        ("self.n += 1", []),
        ("self.hooks = [handle]", ["self.hooks.append(handle)"]),
        ("x[p] = g.clone()", ["x[p].copy_(g.clone())"]),
        ("x = 0", []),
    ],
)
def test_an_assignment_has_its_candidates(wrong: str, right: list[str]) -> None:
    (node,) = ast.parse(wrong).body
    assert [ast.unparse(each) for each in rewrites(node)] == right


SUBJECT = """
class Bucket:
    def __init__(self, parameters):
        self.parameters = parameters
        self.pending = len(parameters)
        self.buffer = torch.zeros(2)

class Sync:
    def bind(self):
        self.counts = {}
        self.buckets = []
        for p in self.all:
            self.counts[p] = 0

    def count(self, bucket):
        bucket.pending -= 1

    def send(self):
        dist.all_reduce(self.flat)

    def wait(self):
        '''Return when all is done.'''

    def zero_grad(self):
        for bucket in self.buckets:
            pass

    def unbind(self):
        for handle in self.hooks:
            del handle
"""


def test_forgotten_lines_are_put_into_the_method_that_lacks_them() -> None:
    file = source(SUBJECT)
    added: dict[str, list[str]] = {}
    edits = [*missing_calls(file)]
    assert edits
    for edit in edits:
        ast.parse(file.edited(edit))
        function = file.function_at(max(1, edit.first - 1))
        assert function is not None
        added.setdefault(function.name, []).extend(edit.lines)
    assert "self.send()" in added["wait"]
    lines = added["zero_grad"]
    assert "self.counts = {}" in lines
    assert "self.buckets = []" not in lines  # nothing adds to it
    assert "bucket.pending = len(bucket.parameters)" in lines
    assert "bucket.buffer.zero_()" in lines
    assert set(added["unbind"]) == {"handle.remove()"}


COUNTS = """
class A:
    def set_required_accumulations(self, count):
        self.required = count

    def f(self, x):
        return {}
"""
FLAG = """
class A:
    def __init__(self):
        self.is_on = self.is_told = True

    def off(self):
        was, self.is_on = self.is_on, False

    def f(self, x):
        if {}:
            return
        x.n += 1
"""
COUNTER = """
def f(x, p):
    {}
    if p is x.p[-1]:
        go()
"""
SAVED = """
class A:
    def f(self):
        was, self.is_on = self.is_on, False
        try:
            yield
        finally:
            {}
"""
AXIS = "def f(self, axes):\n    return mesh.get_group({})"


@pytest.mark.parametrize(
    ("text", "code", "candidates"),
    [
        (COUNTS, "x.n == len(x.p)", ["return x.n == len(x.p) * self.required"]),
        (COUNTS, "x.n == len(x.p) - 1", ["return x.n == (len(x.p) - 1) * self.required"]),
        (COUNTS, "x.n == len(x.p) * self.required", []),
        (COUNTS, "x.n < len(x.p)", []),
        (
            FLAG,
            "x is None",
            ["if not self.is_on or x is None:", "if self.is_on or x is None:", "if not self.is_on:; return"],
        ),
        (FLAG, "x is None and self.is_on", []),
        (COUNTER, "x.n -= 1", ["if x.n == 0:"]),
        (COUNTER, "x.n += 1", ["if x.n == len(x.p):"]),
        (COUNTER, "x.n += size", []),
        (SAVED, "pass", ["self.is_on = was"]),
        (SAVED, "self.is_on = was", []),
        (AXIS, "0", ["return mesh.get_group(axes)", "return mesh.get_group(axes[0])"]),
        (AXIS, "axes[1]", []),
    ],
)  # fmt: skip
def test_a_state_that_the_code_does_not_ask_is_asked(
    text: str, code: str, candidates: list[str]
) -> None:
    assert [*dict.fromkeys(asked(text.format(code)))] == candidates


# Functions of an imported file with changed code, and as they were afterwards.


TEXT = """\
class Counts:
    def count(self):
        return 1

    def both(self):
        return [self.count(), (lambda: 2)()]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "edited_module.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("edited_module")
    del sys.modules["edited_module"]


def edit_of(module: ModuleType, line: int, *lines: str) -> tuple[LiveFile, Edit]:
    file = LiveFile(str(module.__file__))
    node = file.source.statement_at(line)
    assert node is not None
    return file, file.source.instead(node, *lines)


def test_a_change_holds_for_a_block_and_for_objects_that_exist(
    module: ModuleType,
) -> None:
    counts = module.Counts()
    file, edit = edit_of(module, 3, "return 7")
    with file.in_force(edit):
        assert counts.both() == [7, 2]
    assert counts.both() == [1, 2]


def test_a_change_that_is_no_program_is_refused(module: ModuleType) -> None:
    file, edit = edit_of(module, 3, "return (")
    with pytest.raises(NotEditableError), file.in_force(edit):
        pass


def test_a_file_that_changed_since_its_import_is_refused(module: ModuleType) -> None:
    path = Path(str(module.__file__))
    path.write_text(TEXT.replace("return 1", "return 3 + len([])"))
    file, edit = edit_of(module, 3, "return 7")
    with pytest.raises(NotEditableError), file.in_force(edit):
        pass
