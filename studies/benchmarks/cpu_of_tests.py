"""The dearest tests by CPU time, which other programs on the machine hardly change.

A plugin of pytest: `pytest -p studies.benchmarks.cpu_of_tests --costs costs.tsv tests/meta`.
The file has a line for each test, the dearest first: seconds of CPU time, seconds that passed,
and the test. CPU time counts the process, its threads and its finished children. The first
test that asks for a fixture pays for it.
"""

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

# A property of a report: workers of pytest-xdist send reports to the main process.
_CPU_SECONDS: Final = "cpu_seconds"


def cpu_seconds() -> float:
    """CPU time of this process and of its finished children, in seconds."""
    times = os.times()
    return sum((times.user, times.system, times.children_user, times.children_system))


class CostsOfTests:
    """CPU seconds and passed seconds of each test.

    Args:
        path: File of the table. Workers of pytest-xdist write it too; the main process
            does so last, with the tests of all.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cpu: defaultdict[str, float] = defaultdict(float)
        self._passed: defaultdict[str, float] = defaultdict(float)
        self._before = cpu_seconds()

    def pytest_runtest_logstart(self) -> None:
        """Count nothing that was spent between two tests."""
        self._before = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the CPU time since the last report: of fixtures, of the test, of the end."""
        report = yield
        before, self._before = self._before, cpu_seconds()
        report.user_properties.append((_CPU_SECONDS, self._before - before))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test."""
        self._passed[report.nodeid] += report.duration
        for name, value in report.user_properties:
            if name == _CPU_SECONDS:
                assert isinstance(value, float)
                self._cpu[report.nodeid] += value

    def pytest_sessionfinish(self) -> None:
        """Write the table."""
        dearest_first = sorted(self._cpu, key=self._cpu.__getitem__, reverse=True)
        lines = (
            f"{self._cpu[test]:.2f}\t{self._passed[test]:.2f}\t{test}\n"
            for test in dearest_first
        )
        self._path.write_text("".join(lines))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--costs", type=Path, metavar="FILE", help="write CPU time of tests here"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure where the option is given."""
    path = config.getoption("--costs")
    if path is not None:
        config.pluginmanager.register(CostsOfTests(path), "costs of tests")
