"""Methods that decide over the lines of a violation, and are none of those lines."""

import linecache
import re

import torch

from syncverify.judge.violation import Violation
from syncverify.repair.deciding_lines import deciding_lines


class Base:
    """Stands for a synchronizer; nothing of it runs."""

    def wait(self) -> None:
        self.send()

    def send(self) -> None:
        if self.is_ready():
            self.n = self.divisor()
        self.prepare()

    def prepare(self) -> None:
        """Do nothing."""

    def is_ready(self) -> bool:
        return self.count == 1

    def divisor(self) -> int:
        return 1

    def count_up(self) -> None:
        self.count = 1


class Own(Base):
    """Overrides some methods."""

    def divisor(self) -> int:
        return 2

    def count_up(self) -> None:
        pass


class OwnBlank(Base):
    """Overrides a method without code by another one."""

    def prepare(self) -> None: ...

    def is_ready(self) -> bool:
        return True


class LeavesStream(Base):
    """Changes the stream in its own `wait`."""

    other: torch.cuda.Stream

    def wait(self) -> None:
        super().wait()
        self.context = torch.cuda.stream(self.other)


def violation(cause: str, summary: str, line: str) -> Violation:
    evidence = {"code": {"": [f"{line} in send: self.n = self.divisor()"]}}
    return Violation("a_property", cause, summary, (), (), evidence if line else {})


def place(text: str) -> str:
    """Return the first line of this file with a text, as a violation names it."""
    lines = linecache.getlines(__file__)
    return f"{__file__}:{next(n for n, each in enumerate(lines, 1) if text in each)}"


def texts(found: tuple[str, ...]) -> list[str]:
    return [re.sub(r"^\S+ in ", "", line) for line in found]


def test_what_a_line_calls_and_its_condition_come_first() -> None:
    told = violation("scaled", "it is wrong", place("self.n = self.divisor()"))
    assert texts(deciding_lines(told, (), Base)) == [
        "divisor: return 1",
        "is_ready: return self.count == 1",
        "count_up: self.count = 1",
    ]


def test_methods_of_the_own_class_come_before_those_of_bases() -> None:
    told = violation("scaled", "it is wrong", place("self.n = self.divisor()"))
    assert texts(deciding_lines(told, (), Own)) == [
        "divisor: return 2",
        "count_up: pass",
        "is_ready: return self.count == 1",
    ]


def test_only_an_override_may_be_without_code() -> None:
    told = violation("scaled", "it is wrong", place("self.n = self.divisor()"))
    assert texts(deciding_lines(told, (), OwnBlank)) == [
        "is_ready: return True",
        "prepare: def prepare(self) -> None: ...",
        "divisor: return 1",
    ]
    assert "prepare" not in "".join(deciding_lines(told, (), Base))


def test_a_call_that_the_summary_names_is_followed() -> None:
    told = violation("stream_changed", "another stream after wait()", "")
    assert texts(deciding_lines(told, (), LeavesStream))[0] == (
        "wait: self.context = torch.cuda.stream(self.other)"
    )


def test_a_function_has_no_methods_to_follow() -> None:
    told = violation("scaled", "it is wrong", place("self.n = self.divisor()"))
    assert deciding_lines(told, (), violation) == ()
