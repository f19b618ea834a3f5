"""How the mutants of the harness are counted; `make mutation` makes and tries them."""

import inspect
import pkgutil
import tomllib
from pathlib import Path

import pytest

from studies.mutants.general import TARGETS, Change, Mutant, complaints, reasons, table

PUSH = "syncverify.judge.ordering.happens_before.Lane.push"
CHANGE = Change(PUSH, "count = a + 1\nkeep = b", "count = a - 1")


def mutant(number: int, status: str, change: Change | None = None) -> Mutant:
    return Mutant(
        f"syncverify.judge.ordering.happens_before.xǁLaneǁpush__mutmut_{number}",
        status,
        change,
    )


@pytest.mark.parametrize(
    ("removed", "added", "expected"),
    [
        ("zip(a, b, strict=True)", "zip(a, b, strict=False)", True),
        ("zip(a, b, strict=True)", "zip(a, b, )", True),
        ("zip(a, b, strict=True)", "zip(a, strict=True)", False),
        ("zip(a, strict=False)", "zip(a, strict=None)", True),
        ("zip(a, strict=False)", "zip(a, strict=True)", False),
        ("zip(\na, b, strict=True\n)", "zip(\na, b, )", True),
        ("f(a, b)", "f(a, )", False),
    ],
)
def test_only_that_lengths_are_equal_is_left_out(
    removed: str, added: str, *, expected: bool
) -> None:
    assert Change("f", removed, added).is_strictness == expected


MUTANTS = [
    mutant(1, "killed"),
    mutant(2, "timeout"),
    mutant(3, "survived", CHANGE),
    mutant(4, "no tests", Change(PUSH, "a", "b")),
    mutant(5, "not checked"),
]


def test_mutants_are_counted_by_target() -> None:
    assert table(MUTANTS, {CHANGE: "why"}).splitlines() == [
        "| target | mutants | killed | equivalent | survivors | not tried |",
        "|---|---|---|---|---|---|",
        "| race detector | 5 | 2 | 1 | 1 | 1 |",
        "| reference | 0 | 0 | 0 | 0 | 0 |",
        "| collective matcher | 0 | 0 | 0 | 0 | 0 |",
        "| all | 5 | 2 | 1 | 1 | 1 |",
    ]


def test_survivors_and_explanations_of_nothing_are_reported() -> None:
    gone = Change(PUSH, "c", "d")
    first, second = complaints(MUTANTS, {CHANGE: "why", gone: "why"})
    assert first.startswith(f"no tests: {MUTANTS[3].name}")
    assert second == f"no survivor: {gone}"
    assert complaints(MUTANTS[:3], {CHANGE: "why"}) == []


def test_what_is_explained_is_there() -> None:
    explained = reasons()
    assert explained
    for change, reason in explained.items():
        assert len(reason.split()) > 5  # a sentence
        source = inspect.getsource(
            inspect.unwrap(pkgutil.resolve_name(change.function))
        )
        lines = [line.strip() for line in source.splitlines()]
        assert change.removed
        assert {*change.removed.splitlines()} <= {*lines}, change


def test_files_in_the_settings_of_mutmut_exist() -> None:
    """A path that nothing has is a target that nothing mutates."""
    root = Path(__file__).parents[3]
    options = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mutmut"]
    paths = [*options["only_mutate"], *options["pytest_add_cli_args_test_selection"]]
    assert [path for path in paths if not any(root.glob(path))] == []
    modules = [
        ".".join(file.relative_to(root).with_suffix("").parts) + "."
        for path in options["only_mutate"]
        for file in root.glob(path)
    ]
    prefixes = [prefix for own in TARGETS.values() for prefix in own]
    assert [name for name in modules if not name.startswith(tuple(prefixes))] == []
