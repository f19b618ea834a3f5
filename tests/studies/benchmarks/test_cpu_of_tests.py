"""The table of the dearest tests."""

from pathlib import Path

import pytest

from studies.benchmarks import cpu_of_tests

TESTS = """
import time
import pytest

def spend(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

@pytest.fixture
def dear():
    spend(0.06)

def test_cheap(): pass
def test_of_a_dear_fixture(dear): pass
def test_dearest(dear):
    spend(0.06)
"""


def test_the_dearest_is_first_and_fixtures_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "costs.tsv"
    words = ["-p", "no:terminal", "--costs", str(table), "test_it.py"]
    assert pytest.main(words, [cpu_of_tests]) == 0
    lines = [line.split("\t") for line in table.read_text().splitlines()]
    assert [test for _, _, test in lines] == [
        "test_it.py::test_dearest",
        "test_it.py::test_of_a_dear_fixture",
        "test_it.py::test_cheap",
    ]
    spent = [float(cpu) for cpu, _, _ in lines]
    assert spent[0] > 0.1
    assert spent[1] > 0.04
