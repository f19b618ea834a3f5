"""CI, nox and the package metadata state the same versions of Python and torch."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OLDEST = PROJECT["requires-python"].removeprefix(">=")


def jobs(workflow: Path) -> dict[str, dict[str, Any]]:
    """Return the jobs of a workflow by name."""
    return dict(yaml.safe_load(workflow.read_text())["jobs"])


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    """Yield each step of each job."""
    for job in jobs(workflow).values():
        yield from job["steps"]


@pytest.fixture(scope="module")
def sessions() -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "nox", "--list", "--json", "--session", "tests"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 1  # one line of $GITHUB_OUTPUT
    return list(json.loads(done.stdout))


@pytest.mark.slow
def test_every_python_meets_the_pinned_torch(sessions: list[dict[str, Any]]) -> None:
    classifier = re.compile(r"Programming Language :: Python :: (3\.\d+)")
    declared = [m[1] for c in PROJECT["classifiers"] if (m := classifier.fullmatch(c))]
    met = [s["python"] for s in sessions if s["call_spec"] == {"torch": "pinned"}]
    assert met == declared
    assert declared[0] == OLDEST


@pytest.mark.slow
def test_ends_of_both_ranges_are_tested(sessions: list[dict[str, Any]]) -> None:
    cells = {(s["python"], s["call_spec"]["torch"]) for s in sessions}
    pythons = [python for python, torch in cells if torch == "pinned"]
    newest = max(pythons, key=lambda python: int(python.partition(".")[2]))
    assert {(OLDEST, "oldest"), (newest, "newest")} <= cells


def test_pinned_torch_is_allowed_by_the_package() -> None:
    (needed,) = [d for d in PROJECT["dependencies"] if d.startswith("torch")]
    pins = (ROOT / "constraints.txt").read_text()
    (pinned,) = re.findall(r"^torch==(\d+)\.(\d+)\.\d+$", pins, re.MULTILINE)
    lower = re.fullmatch(r"torch>=(\d+)\.(\d+)", needed)
    assert lower is not None  # noxfile.py reads one lower bound and no other
    assert [*map(int, lower.groups())] <= [*map(int, pinned)]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_has_runnable_steps(workflow: Path) -> None:
    assert all("runs-on" in job for job in jobs(workflow).values())
    assert all(("run" in step) != ("uses" in step) for step in steps(workflow))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_states_no_python_but_the_oldest(workflow: Path) -> None:
    stated = {
        str(step["with"]["python-version"])
        for step in steps(workflow)
        if "setup-python" in step.get("uses", "")
    }
    assert OLDEST in stated
    assert stated <= {OLDEST, "${{ matrix.python }}"}


def test_matrix_of_ci_comes_from_nox() -> None:
    ci = jobs(ROOT / ".github" / "workflows" / "ci.yml")
    commands = [step.get("run", "") for step in ci["matrix"]["steps"]]
    assert any("$(nox --list --json --session tests)" in line for line in commands)
    assert ci["versions"]["strategy"]["matrix"] == {
        "include": "${{ fromJSON(needs.matrix.outputs.sessions) }}"
    }
