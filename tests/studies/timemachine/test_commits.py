"""The list of commits: the rule, and the releases around each commit."""

import subprocess
from pathlib import Path

import pytest

from studies.timemachine.commits import (
    CLASSES,
    OTHER,
    REPOSITORIES,
    WORDS,
    Repository,
    commits_of,
    kind_of,
    stored,
)

COMMITS = (
    ("zero/a.py", "Fix gradient norm (#1)"),
    ("zero/a.py", "Add a stream"),
    ("docs/a.md", "Fix a race in the documents"),
    ("zero/a.py", "Wait: a race of two streams (#2)"),
    ("zero/a.py", "Correct a suffix"),
)


@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        ("Fix grad norm clipping", "norm"),
        ("fix incorrect gradient scaling target", "scale"),
        ("Fix overlap-comm buffer lifetimes", "order"),
        ("[Bugfix] Force all reduce in backward", "gradient"),
        ("Fix typo", OTHER),
    ],
)
def test_words_of_the_subject_decide_the_class(subject: str, kind: str) -> None:
    assert WORDS.search(subject)
    assert kind_of(subject) == kind


@pytest.mark.parametrize(
    "subject", ["Trace buckets", "Correct a suffix", "Prefix sums"]
)
def test_parts_of_other_words_do_not_count(subject: str) -> None:
    assert not WORDS.search(subject)


def test_a_commit_is_between_the_last_release_without_it_and_the_first_with_it(
    tmp_path: Path,
) -> None:
    def git(*arguments: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "gc.auto=0")
        command = ("git", "-C", str(tmp_path), *name, *arguments)
        subprocess.run(command, check=True, capture_output=True)

    git("init", "-q")
    for number, (file, subject) in enumerate(COMMITS):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(str(number))
        git("add", ".")
        git("commit", "-q", "-m", subject)
        if number < 2:
            git("tag", f"v1.{number + 9}.0")  # 1.10 is newer than 1.9
    repository = Repository("a/b", REPOSITORIES[1].tags, ("zero",))
    found = [*commits_of(repository, tmp_path)]
    assert [(each.before, each.after, each.kind, each.subject) for each in found] == [
        ("1.10.0", "", "order", "Wait: a race of two streams (#2)"),
        ("", "1.9.0", "norm", "Fix gradient norm (#1)"),
    ]


def test_the_stored_list_follows_the_rule() -> None:
    rows = stored()
    assert {row.repository for row in rows} == {each.name for each in REPOSITORIES}
    assert all(WORDS.search(row.subject) for row in rows)
    assert all(row.kind == kind_of(row.subject) for row in rows)
    assert {row.kind for row in rows} == {*CLASSES, OTHER}
