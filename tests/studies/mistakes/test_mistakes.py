"""The corpus of one-line mistakes is well formed, and causes and fixes are scored."""

import difflib
from dataclasses import replace

import pytest

from studies.mistakes.corpus import SUBJECTS, base_source, mistake_named, mistakes
from studies.mistakes.fixes import Cost, Played, applied, compared, played
from studies.mistakes.playing import Told, told_about
from studies.mistakes.scoring import is_named, wrong_certain
from syncverify.search.found_violation import Fix
from syncverify.trace.source_lines import SourceLine

SOURCE = """\
def send(bucket):
    if bucket.count == 1:
        bucket.launch()
    return bucket
"""


@pytest.mark.parametrize("name", [each.name for each in mistakes()])
def test_a_mistake_changes_one_line(name: str) -> None:
    mistake = mistake_named(name)
    compile(mistake.text, name, "exec")
    before, after = (
        text.splitlines() for text in (base_source(mistake.base), mistake.text)
    )
    changed = [
        line.split()[0]
        for line in difflib.ndiff(before, after)
        if line[0] in "+-" and line[1] == " "
    ]
    assert sorted(changed) == ["+", "-"]


def test_a_fix_is_applied_as_it_is_printed() -> None:
    removed = Fix(
        SourceLine("sync.py", 2, "send"),
        ("- if bucket.count == 1:", "+ if True:"),
        6,
        4,
    )
    added = Fix(
        SourceLine("sync.py", 3, "send"), ("  bucket.launch()", "+ bucket.wait()"), 6, 4
    )
    assert applied(SOURCE, removed) == SOURCE.replace("bucket.count == 1", "True")
    assert applied(SOURCE, added) == SOURCE.replace(
        "launch()\n", "launch()\n        bucket.wait()\n"
    )
    with pytest.raises(ValueError, match="is not the line"):
        applied(SOURCE, replace(removed, place=SourceLine("sync.py", 1, "send")))


@pytest.mark.parametrize(
    ("cost", "verdict"),
    [
        ((4, 4, 0, 64), "ok"),
        ((3, 4, 0, 60), "ok"),
        ((5, 4, 0, 64), "adds a launch"),
        ((4, 3, 0, 64), "loses overlap"),
        ((4, 4, 1, 64), "loses overlap"),
        ((4, 4, 0, 65), "adds memory"),
    ],
)
def test_a_fix_is_compared_with_the_right_program(
    cost: tuple[int, int, int, int], verdict: str
) -> None:
    right, fixed = Cost(4, 4, 0, 64), Cost(*cost)
    assert (
        compared(Played((right,), is_right=True), Played((fixed,), is_right=True))
        == verdict
    )
    assert (
        compared(Played((right,), is_right=True), Played((fixed,), is_right=False))
        == "still wrong"
    )


def test_a_cause_that_is_certain_and_wrong_is_counted() -> None:
    diagnoses = [
        Told(
            "gradient_equals_reference (not_reduced)", "not_reduced", "certain: ...", ""
        ),
        Told("gradient_equals_reference (stale)", "stale", "likely: ...", ""),
        Told("gradient_equals_reference (view_lost)", "view_lost", "certain: ...", ""),
    ]
    mistake = mistake_named("hook-on-first-parameter-only")
    assert is_named(mistake, diagnoses)
    assert wrong_certain(mistake, diagnoses) == ("view_lost",)
    assert not is_named(mistake, diagnoses[1:])
    says_too_little = mistake_named("counter-not-reset")
    assert not is_named(says_too_little, diagnoses)


@pytest.mark.long
@pytest.mark.parametrize(
    "base",
    [
        *[*SUBJECTS][:1],
        *(pytest.param(base, marks=pytest.mark.nightly) for base in [*SUBJECTS][1:]),
    ],
)
def test_a_right_program_is_not_accused_and_costs_the_same_twice(base: str) -> None:
    assert told_about(base, base_source(base), examples=10) == []
    once = played(base, base_source(base))
    assert compared(once, played(base, base_source(base))) == "ok"
    assert sum(cost.early for cost in once.costs) > 0


@pytest.mark.long
def test_a_mistake_is_found() -> None:
    mistake = mistake_named("hooks-stay")
    violations = told_about(mistake.base, mistake.text, examples=3)
    assert is_named(mistake, [each for each, _ in violations])
