"""Lines that set back what a step left over, from the path of the value."""

import ast
import textwrap
from dataclasses import replace

import pytest
from torch import nn

from syncverify.explain.case import Case
from syncverify.explain.repair.diagnosis import find_fix
from syncverify.explain.repair.left_over import left_over
from syncverify.explain.repair.missing_lines import set_back
from syncverify.explain.repair.source_edit import Source
from syncverify.plain_text import counted
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.search.plain_state import LeftOver, Part, ShownValue, shown_value
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from tests.programs import violations

SUBJECT = """
class Sync:
    def wait(self):
        for work in self.works:
            work.wait()
        return None

    def zero_grad(self):
        pass

class Other:
    def wait(self):
        pass
"""


def parts(*texts: str) -> tuple[Part, ...]:
    """Return a path; a text with a star is one of many keys or, with a number, indices."""
    found = list[Part]()
    for text in texts:
        if text.startswith("."):
            found.append(Part("attribute", text))
        elif text.startswith("['"):
            found.append(Part("key", text))
        else:
            kind = "index" if text[1:-1].isdigit() else "key"
            found.append(Part(kind, text, is_any=True))
    return tuple(found)


def left(*texts: str, before: object = 0) -> LeftOver:
    return LeftOver(parts(*texts), shown_value(before), shown_value(7), 1)


def left_size(*texts: str, before: int = 0) -> LeftOver:
    sizes = [ShownValue(counted(size, "element"), size) for size in (before, 7)]
    return LeftOver(parts(*texts), *sizes, 1)


def lines(*left_over: LeftOver) -> list[tuple[str, ...]]:
    text = textwrap.dedent(SUBJECT)
    source = Source("a.py", tuple(text.splitlines()), ast.parse(text))
    edits = [*set_back(source, left_over)]
    for edit in edits:
        ast.parse(source.edited(edit))
    return [edit.lines for edit in edits]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (left(".step"), ("self.step = 0",)),
        (left(".is_done", before=False), ("self.is_done = False",)),
        (left_size(".works"), ("self.works.clear()",)),
        (left(".count", "[p0]"), ("for key in self.count:", "    self.count[key] = 0")),
        (left(".count", "[3]"),
            ("for index in range(len(self.count)):", "    self.count[index] = 0")),
        (left_size(".buckets", "[0]", "['ready']"),
            ("for each in self.buckets:", "    each['ready'].clear()")),
        (left(".of", "[p0]", ".count"),
            ("for each in self.of.values():", "    each.count = 0")),
        (left_size(".ready", "[p0]"), ("for each in self.ready.values():", "    each.clear()")),
    ],
)  # fmt: skip
def test_a_value_is_set_back_at_the_end_of_a_step(
    value: LeftOver, expected: tuple[str, ...]
) -> None:
    assert lines(value) == [expected, expected]


class KeepsReady(PlainGrads):
    """Sends all gradients when all are ready, and takes them for ready in the next step too."""

    capabilities = Capabilities(varying_accumulations=True)

    def bind(self) -> None:
        self.buckets = [{"ready": set[nn.Parameter]()}]
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)

    def note(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] < self.required:
            return
        ready = self.buckets[0]["ready"]
        ready.add(parameter)
        if len(ready) == len(self.parameters):
            for each in self.parameters:
                self.reduce(each.grad)  # type: ignore[arg-type]

    def wait(self) -> None:
        for parameter in self.parameters:
            self.counts[parameter] = 0

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


@pytest.mark.long
def test_the_fix_sets_back_what_is_left_over() -> None:
    specs = tuple(ParameterSpec(f"p{n}", (2,), ("R",)) for n in range(2))
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1, 1), 1 << 20)
    subject, backend = resolve(KeepsReady), SimBackend()
    first, *_ = violations(subject, scenario)
    entry = FoundViolation(first, scenario)
    entry = replace(entry, left_over=left_over(Case(entry, subject, backend)))
    fix = find_fix(Case(entry, subject, backend))
    assert fix is not None
    assert fix.sets_back
    assert fix.lines[1:] == (
        "+ for each in self.buckets:",
        "+     each['ready'].clear()",
    )
