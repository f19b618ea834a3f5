"""CI, nox and the package metadata state the same versions of Python and torch."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from studies.pages import versions

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAIRS = versions.pairs()
OLDEST = PROJECT["requires-python"].removeprefix(">=")


@pytest.fixture(scope="module")
def sessions() -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "nox", "--list", "--json", "--session", "tests"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 1  # one line of $GITHUB_OUTPUT
    return list(json.loads(done.stdout))


@pytest.mark.slow
def test_nox_plays_each_pair(sessions: list[dict[str, Any]]) -> None:
    assert [(each["python"], each["call_spec"]["torch"]) for each in sessions] == PAIRS


def test_each_python_is_in_a_pair() -> None:
    classifier = re.compile(r"Programming Language :: Python :: (3\.\d+)")
    declared = {m[1] for c in PROJECT["classifiers"] if (m := classifier.fullmatch(c))}
    assert declared == {python for python, _ in PAIRS}
    assert PAIRS[0][0] == OLDEST


def test_oldest_torch_is_played() -> None:
    (needed,) = [d for d in PROJECT["dependencies"] if d.startswith("torch")]
    lower = needed.removeprefix("torch>=")
    oldest = min((torch for _, torch in PAIRS), key=numbers)
    assert numbers(oldest)[:2] == numbers(lower)
    pins = (ROOT / "constraints.txt").read_text()
    assert f"\ntorch=={PAIRS[0][1]}\n" in pins


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


JUNIT = """<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="4"
tests="6989" time="638.16" timestamp="2026-11-27T02:54:38+00:00"/></testsuites>"""


def test_a_play_takes_the_place_of_an_earlier_one_on_the_same_pair(
    tmp_path: Path,
) -> None:
    (tmp_path / "junit.xml").write_text(JUNIT)
    play = versions.play_of(tmp_path / "junit.xml", "quick")
    assert (play.passed, play.failed, play.skipped) == (6982, 3, 4)
    assert (play.date, play.seconds) == ("2026-11-27", 638)
    play = replace(play, python="3.12.1", torch="2.15.0+cu132")
    others = [replace(play, python="3.13.0"), replace(play, python="3.12.9", failed=0)]
    assert versions.stored(others, play) == [others[0], play]
    assert (
        f"| 3.12.1 | 2.15.0+cu132 | 2026-11-27 | {play.commit} | quick | 6,982 | 3 | 4 | 638 |"
        in ("\n".join(versions.rows([play])))
    )
    assert "| 3.13 | 2.14.1 | never |" in "\n".join(versions.rows([play]))


NEWEST = max(PAIRS, key=lambda pair: (numbers(pair[1]), numbers(pair[0])))
MOST_COMMITS = 100


def test_the_newest_pair_was_played_not_long_ago() -> None:
    (play,) = (each for each in versions.PLAYS.read() if each.pair == NEWEST)
    num_commits = versions.num_commits_since(play.commit)
    if num_commits is None:
        pytest.skip(f"no history of git with the commit {play.commit}")
    assert num_commits <= MOST_COMMITS, "play it: make versions TESTS=quick"


def test_ci_plays_tests_on_the_newest_pair() -> None:
    script = (ROOT / ".ci" / "newest").read_text()
    tests = re.findall(r"^  (tests/[\w/]+\.py)(?:::(\w+))?", script, re.MULTILINE)
    assert len(tests) >= 5
    for file, name in tests:
        assert f"def {name}" in (ROOT / file).read_text()
    assert "\n.ci/newest\n" in (ROOT / ".ci" / "run").read_text()


def test_matrix_of_ci_comes_from_nox() -> None:
    workflow = ROOT / ".github" / "workflows" / "ci.yml"
    ci = yaml.safe_load(workflow.read_text())["jobs"]
    commands = [step.get("run", "") for step in ci["matrix"]["steps"]]
    assert any("$(nox --list --json --session tests)" in line for line in commands)
    assert ci["versions"]["strategy"]["matrix"] == {
        "include": "${{ fromJSON(needs.matrix.outputs.sessions) }}"
    }
