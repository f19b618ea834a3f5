"""Names in prose exist, and none is missing: the fields under `Attributes:`, paths of files."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Links to two of the packages.
LINKS = (ROOT / "syncverify" / "synchronizer", ROOT / "syncverify" / "strategies")
PACKAGES = ("syncverify", "synchronizer", "strategies", "studies")
# A name in capitals stands for any.
PATH = re.compile(
    r"(?<![\w./{}-])(?:syncverify|synchronizer|strategies|studies|tests|docs|examples)"
    r"/(?!\S*[A-Z]{4}\.)[\w./-]*\w\.(?:py|md|toml|json|csv|cpp|html)\b"
)
ENTRY = re.compile(r"^    (\w+(?:, \w+)*):", re.MULTILINE)


def problems(source: str) -> Iterator[str]:
    """Yield each class with the fields that its docstring misses or has too many."""
    classes = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef))
    for node in classes:
        _, found, section = (ast.get_docstring(node) or "").partition("Attributes:")
        if not found or not is_dataclass(node):
            continue
        listed = set(", ".join(ENTRY.findall(until_next(section))).split(", "))
        if missing := {*fields(node)} - listed:
            yield f"{node.name} lacks {', '.join(sorted(missing))}"
        if not node.bases and (gone := listed - names_in(node)):
            yield f"{node.name} has no {', '.join(sorted(gone))}"


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list)


def until_next(section: str) -> str:
    """Return the text of a section of a docstring up to the next section."""
    return re.split(r"\n(?=\S)", section)[0]


def fields(node: ast.ClassDef) -> Iterator[str]:
    """Yield the public fields of a dataclass; one with `init=False` has a fixed value."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            is_fixed = each.value is not None and "init=False" in ast.unparse(
                each.value
            )
            is_of_class = "ClassVar" in ast.unparse(each.annotation)
            if not (is_fixed or is_of_class or each.target.id.startswith("_")):
                yield each.target.id


def names_in(node: ast.ClassDef) -> set[str]:
    """Return the fields and properties of a class."""
    set_here = (each for each in ast.walk(node) if isinstance(each, ast.AnnAssign))
    methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
    targets = {ast.unparse(each.target) for each in set_here}
    return targets | {each.name for each in methods}


def sources() -> Iterator[tuple[Path, str]]:
    """Yield the sources of the packages with their texts."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if not file.is_relative_to(LINKS[0]) and not file.is_relative_to(LINKS[1]):
                yield file.relative_to(ROOT), file.read_text("utf-8")


@pytest.mark.slow
def test_attributes_are_the_fields_of_a_class() -> None:
    found = [
        f"{file}: {problem}"
        for file, text in sources()
        if "Attributes:" in text
        for problem in problems(text)
    ]
    assert found == []


def test_paths_in_sources_contracts_and_pages_exist() -> None:
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "syncverify/subjects/contracts").iterdir(),
    ]
    texts = [*sources(), *((page, page.read_text("utf-8")) for page in pages)]
    found = {(file, path) for file, text in texts for path in PATH.findall(text)}
    assert len(found) > 100
    assert [each for each in found if not (ROOT / each[1]).exists()] == []


HEAD = '@dataclass\nclass A:\n    """A.\n\n    Attributes:\n        a, b: One\n            two.\n    """\n\n'


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("    a: int\n    b: int\n    c: int\n", ["A lacks c"]),
        ("    a: int\n", ["A has no b"]),
        ("    a: int\n    b: int\n    _c: int\n    D: ClassVar[int] = 1\n", []),
        ("    a: int\n    b: int\n    c: str = field(default='', init=False)\n", []),
    ],
)
def test_planted_list_of_attributes_is_judged(body: str, problem: list[str]) -> None:
    assert [*problems(HEAD + body)] == problem


def test_planted_path_is_found_and_a_placeholder_is_not() -> None:
    text = "`RARE` in syncverify/scenario/gone.py; see studies/results/NAME.json"
    assert PATH.findall(text) == ["syncverify/scenario/gone.py"]
