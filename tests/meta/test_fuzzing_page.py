"""The page about fuzzing by hand, copied into a file as a user would, and run with pytest."""

import re
import subprocess
from pathlib import Path

import pytest

from syncverify import MeshSpec, ParameterSpec, Scenario
from tests.warm_python import ROOT, python

# The whole page takes 25 s of CPU time, which is minutes where many share a machine.
pytestmark = [pytest.mark.long(50), pytest.mark.timeout(3600)]
PAGE = ROOT / "docs" / "fuzzing-bucket-edges.md"
CODE = "\n".join(re.findall(r"```python\n(.+?)```", PAGE.read_text(), re.DOTALL))
MISTAKE = """
            if num_bytes > self.cap_bytes:
                return
"""
KEPT = "test_two_buckets_and_edges"
NAMES = {"Scenario": Scenario, "MeshSpec": MeshSpec, "ParameterSpec": ParameterSpec}


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user does: no profile of ours, no database from before."""
    # `CI` is the name of a profile of Hypothesis, and forbids to save failures.
    return python("-m", *words, folder=folder, COLUMNS="300", CI=None)


def run_page(folder: Path, code: str, *words: str) -> str:
    (folder / "test_edges.py").write_text(code)
    options = ["-p", "no:cacheprovider", "--hypothesis-show-statistics", *words]
    return command(folder, "pytest", "test_edges.py", *options).stdout


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the output of pytest for the whole page."""
    return run_page(
        tmp_path_factory.mktemp("page"), CODE, "--hypothesis-seed=0", "--color=no"
    )


def part_of(shown: str, test: str) -> str:
    """Return the failure of one test."""
    found = re.search(
        rf"^_+ {test} _+$(.+?)^test_edges\.py:\d+: AssertionError",
        shown,
        re.MULTILINE | re.DOTALL,
    )
    assert found, shown
    return re.sub(r"(?m)^E {3}", "", found[1])


def scenario_in(failure: str) -> Scenario:
    """Return the scenario that Hypothesis prints."""
    (text,) = re.findall(
        r"(?m)^ *scenario=(Scenario\(.+?\)),\n *\)", failure, re.DOTALL
    )
    scenario = eval(text, {**NAMES})  # as a user pastes it
    assert isinstance(scenario, Scenario)
    return scenario


@pytest.mark.nightly  # the page takes half a minute
@pytest.mark.parametrize("test", ["test_bucket_edges", "test_many_buckets", KEPT])
def test_each_failure_is_small_with_a_diagnosis_and_a_replay_line(
    shown: str, test: str
) -> None:
    failure = part_of(shown, test)
    assert "AssertionError: gradient_equals_reference: gradient of " in failure
    assert "  scenario: 2 ranks, mesh (dp=2)" in failure
    assert "smallest scenario" not in failure
    assert failure.count("VIOLATION: ") == 1
    assert "fix:        at test_edges.py:" in failure
    assert "- if num_bytes > self.cap_bytes:" in failure
    assert re.search(r"replay: +syncverify replay sv2-\S+ test_edges\.py:", failure)
    if test != KEPT:  # whose scenario the page gives
        scenario = scenario_in(failure)
        assert scenario.mesh.num_ranks == 2
        assert len(scenario.parameters) <= 2
        assert scenario.num_steps == 1
        assert "@reproduce_failure('" in failure


def test_page_is_right_without_the_mistake(tmp_path: Path) -> None:
    assert MISTAKE in CODE
    few = CODE.replace(MISTAKE, "\n").replace("max_examples=100", "max_examples=5")
    shown = run_page(tmp_path, few)
    assert re.search(r"^=+ 4 passed", shown, re.MULTILINE), shown
