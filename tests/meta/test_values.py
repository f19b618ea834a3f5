"""A place, a cause and an event are values: no module reads them back out of a text."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("syncverify", "synchronizer", "strategies", "studies")
# Readers of texts that others write, and the one home of the names of causes.
ALLOWED: Final = {
    "studies/mutants/trial.py",  # names of tests
    "studies/pages/followed.py",  # commands of a page
    "studies/releases/marks.py",  # marks of a page
    "studies/torch_tests/results.py",  # messages of skipped tests
    "syncverify/report/html/moment.py",  # labels, each shorter than the one before
    "syncverify/witness/fix.py",  # the one home of the marks of its lines
    "studies/benchmarks/report.py",  # lines of /proc/cpuinfo
    "studies/findings/patching.py",  # hunks of patches
    "syncverify/command/export/script.py",  # lines of imports
    "syncverify/judge/cause.py",
    "syncverify/processes/thread_demand.py",  # files of /proc
    "syncverify/scenario/feature_row.py",  # features that a user spells
    "syncverify/subjects/subject_options.py",  # options of a subject that a user spells
    "syncverify/trace/stacks.py",  # stacks that faulthandler has written
}
_CUTS = {"partition", "rpartition", "split", "rsplit"}
_ENDS = {"startswith", "endswith", "removeprefix", "removesuffix"}
_FINDS = {"findall", "finditer", "fullmatch", "match", "search"}
# In a regular expression: a file of Python, ` in ` before a function, or a line number.
_PLACE = re.compile(r"\\\.py| in |(?<!\\d)[+*]\??\)?:\(?\\d")
# Texts of the harness about a fault or a violation.
_HARNESS_TEXTS = re.compile(r"(^|\.)(cause|error|explanation|how|summary|words)$")
# Those of them that are never a text of the user, as an error may be.
_HARNESS_WORDS = re.compile(r"\.(explanation|how|summary|words)$")
# Separates words, or a feature and its variant.
_OF_A_WORD = re.compile(r" |^/|/$")
# A word of a sentence, between two others.
_WORDS = re.compile(r" [a-z]+ ")
_FEATURES = re.compile(r"(^|_)(event|feature|name|text|topic|word)s?$")
_NAMES = re.compile(r"(^|_)(at|code|detail|line|origin|place|source|summary)s?$")


def parsed(text: str) -> Iterator[str]:
    """Yield the expressions of a module that read a place, a cause or an event from a text."""
    for node in ast.walk(ast.parse(text)):
        if any(reads(node) for reads in _READERS):
            yield ast.unparse(node)


def _cuts_at_a_constant(node: ast.AST) -> bool:
    """Tell whether a call cuts a text at a constant, as `place.partition(" in ")` does."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=read, attr=name),
            args=[ast.Constant(value=str() as by), *_],
        ):
            return name in _CUTS and _separates_places(read, by)
    return False


def _cuts_at_spaces(node: ast.AST) -> bool:
    """Tell whether an expression picks a word of a text, as `reduction.split()[1]` does."""
    match node:
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr=name), args=[])):
            return name in _CUTS
    return False


def _compares_an_end(node: ast.AST) -> bool:
    """Tell whether a call looks at the start or the end of a text of the harness."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr=name), args=[ast.Constant(value=str() as by)]
        ) if name in _ENDS and (by == "raised_" or _OF_A_WORD.search(by)):
            return True
        case ast.Call(func=ast.Attribute(value=read, attr=name), args=[_]):
            return name in _ENDS and _is_of_harness(read)
    return False


def _searches(node: ast.AST) -> bool:
    """Tell whether a regular expression finds a place, or looks at a text of the harness."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=read), args=[ast.Constant(value=str() as by), *_]
        ) if ast.unparse(read) == "re" and _PLACE.search(by):
            return True
        case ast.Call(func=ast.Attribute(attr=name), args=args):
            return name in _FINDS and any(map(_is_of_harness, args))
    return False


def _compares_a_text(node: ast.AST) -> bool:
    """Tell whether a comparison looks at the words of the harness."""
    match node:
        case ast.Compare(left=ast.Call(func=ast.Name(id="str")), ops=[ast.In()]):
            return True
        case ast.Compare(
            left=ast.Constant(value=str()),
            ops=[ast.In() | ast.NotIn()],
            comparators=[text],
        ):
            return _is_of_harness(text)
        case ast.Compare(left=text, ops=[ast.Eq() | ast.NotEq() | ast.In()]):
            return _HARNESS_WORDS.search(ast.unparse(text)) is not None
    return False


_READERS = (
    _cuts_at_a_constant,
    _cuts_at_spaces,
    _compares_an_end,
    _searches,
    _compares_a_text,
)


def _is_of_harness(text: ast.expr) -> bool:
    """Tell whether an expression is a text of the harness about a fault or a violation."""
    return _HARNESS_TEXTS.search(ast.unparse(text)) is not None


def _separates_places(read: ast.expr, by: str) -> bool:
    """Tell whether a separator cuts a sentence, a list of names, a feature or a place."""
    name = ast.unparse(read).rpartition(".")[2]
    is_of_place = by == ":" and _NAMES.search(name) is not None
    is_of_feature = by in {"=", "/", " "} and _FEATURES.search(name) is not None
    return bool(_WORDS.search(by)) or by == ", " or is_of_place or is_of_feature


def test_no_module_parses_what_is_a_value() -> None:
    found = {
        str(file.relative_to(ROOT)): [*parsed(file.read_text("utf-8"))]
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
    }
    assert {name for name, each in found.items() if each} - ALLOWED == set()
    assert all(found[name] for name in ALLOWED)


@pytest.mark.parametrize(
    "planted",
    [
        'place, _, name = launch.source.partition(" in ")',
        'path, _, number = line.rpartition(":")',
        'PLACE = re.compile(r"(\\S+\\.py):(\\d+) in ")',
        'PLACE = re.compile(r"(.+?):(\\d+)")',
        'is_error = violation.cause.startswith("raised_")',
        "told = [each for each in trace if str(each) in words]",
        "is_of_list = _OF_A_LIST.search(violation.summary) is not None",
        'left = report.not_tried.partition(", since ")[0]',
        'names = [name for each in parameters for name in each.split(", ")]',
        'covers(*name.split("="))',
        "num_axes = int(reduction.split()[1])",
        "is_unset = \"'NoneType'\" in fault.error",
        'is_late = violation.summary.startswith("rank 0: nothing orders")',
        'parameter = value.name.split(" ")[0]',
        'is_replaced = event.endswith("/replaced")',
        'own = not place.endswith(" of p0")',
        'is_first = event.partition("/")[2] == "first"',
        "is_error = found.violation.cause.startswith(_RAISED)",
        "is_from_anybody = lost.how in _FROM_ANYBODY",
    ],
)
def test_a_planted_reader_is_found(planted: str) -> None:
    assert len([*parsed(planted)]) == 1


@pytest.mark.parametrize(
    "legal",
    [
        'module, _, attribute = subject.partition(":")',
        'PORT = re.compile(r"--nn=(\\d+):(\\d+)")',
        'ranks = [int(each) for each in argument.split(",")]',
        'target = line.partition(" = ")[0]',
    ],
)
def test_readers_of_command_lines_are_legal(legal: str) -> None:
    assert [*parsed(legal)] == []
