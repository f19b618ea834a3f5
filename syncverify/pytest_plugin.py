"""The pytest plugin: verifications as tests, and their results where pytest shows results.

Every run of pytest in an environment with syncverify loads this module. So it imports torch,
and each part of the harness that imports torch, only when a test needs the harness.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from typing_extensions import override

from syncverify.plain_text import counted
from syncverify.progress import SilentProgress
from syncverify.scenario.bounds import MAX_SECONDS
from syncverify.scenario.settings import DEFAULTS, SETTINGS, Setting, SettingKind

if TYPE_CHECKING:
    from syncverify.report.report import Report
    from syncverify.search.judge import Identity
    from syncverify.subjects.subject import SubjectFactory

_FIXTURE: Final = "verify_subject"
_MARK: Final = "syncverify"
_RANKS: Final = "ranks"
# Properties of a test, for JUnit files, and for the process that prints under pytest-xdist.
_VERDICT: Final = "syncverify.verdict"
_VIOLATION: Final = "syncverify.violation"
_ANNOTATION: Final = "syncverify.annotation"  # under GitHub's actions alone
_REPLAY: Final = "syncverify.replay"

_QUIET_SECONDS: Final = 2.0  # no progress before
_REDRAW_SECONDS: Final = 0.2


def check(
    subject: str | SubjectFactory, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a test of a function, which may be empty: verify a subject, then call the function.

    Subject and options are those of `syncverify.verify()`. The seed is 0 by default. Options of the
    command line count more.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any, verify_subject: Any, **fixtures: Any) -> Any:
            verify_subject(subject, **options)
            __tracebackhide__ = True  # from here on, the lines of the function tell all
            return function(*args, **fixtures)

        own = inspect.signature(function)
        asks = inspect.Parameter(_FIXTURE, inspect.Parameter.KEYWORD_ONLY)
        wrapper: Any = functools.update_wrapper(checked, function)
        wrapper.__signature__ = own.replace(parameters=[*own.parameters.values(), asks])
        # pytest shows the lines of a test in which it failed: these are to be the user's.
        wrapper.__code__ = wrapper.__code__.replace(
            co_filename=function.__code__.co_filename,
            co_firstlineno=function.__code__.co_firstlineno,
            co_name=function.__name__,
        )
        marked: Callable[..., Any] = getattr(pytest.mark, _MARK)(wrapper)
        return marked

    return decorate


@pytest.fixture
def verify_subject(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """Return `syncverify.verify()` with the defaults of a test.

    Defaults are those of `[tool.syncverify]`; without one there, the seed is 0. Options of the
    command line count more than arguments.
    """
    given = dict[str, Any]()
    for name, setting in SETTINGS.items():
        value = request.config.getoption(f"syncverify_{name}", None)
        if setting.is_of_tests and value is not None:
            given[name] = value

    def verified(subject: str | SubjectFactory, **options: Any) -> Report:
        __tracebackhide__ = True
        from syncverify.command.verification.verify import verify  # imports torch
        from syncverify.subjects.project_file import project_file

        own = {"seed": 0, "examples": DEFAULTS["examples"]}
        chosen = {**own, **project_file().of_verify(), **options, **given}
        with _LiveLine(request.config, chosen["examples"]) as progress:
            report = verify(subject, progress=progress, **chosen)
        request.node.user_properties += _properties(report)
        return report

    return verified


def _read(text: str, kind: SettingKind, least: int | None = 1) -> str | float:
    """Read the value of an option; argparse makes one line and an exit of what is raised."""
    words = "a name or a file"
    if kind == "integer":
        words = "a positive number" if least else "a number from 0"
        if text.isdecimal() and int(text) >= (least or 0):
            return int(text)
    elif kind == "seconds":
        words = f"seconds from 0 to {MAX_SECONDS}"
        with suppress(ValueError):
            if 0 < float(text) <= MAX_SECONDS:
                return float(text)
    elif not Path(text).is_dir():
        return text
    raise argparse.ArgumentTypeError(f"expected {words}, got {text!r}")


def _type_of(setting: Setting) -> dict[str, Any]:
    if setting.kind == "choice":
        return {"choices": setting.choices}
    metavars = {"integer": "N", "seconds": "SECONDS"}
    return {
        "type": functools.partial(_read, kind=setting.kind, least=setting.least),
        "metavar": metavars.get(setting.kind, setting.metavar),
    }


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that hold for all verifications of a run."""
    group = parser.getgroup("syncverify", "verification of gradient synchronizers")
    for name, setting in SETTINGS.items():
        if setting.is_of_tests:
            group.addoption(
                f"--syncverify-{setting.option}", dest=f"syncverify_{name}",
                help=f"{setting.meaning} It counts more than a test's own.",
                **_type_of(setting),
            )  # fmt: skip
    group = parser.getgroup(
        "simulate", "simulation of the ranks of torch's test classes"
    )
    group.addoption(
        "--simulate-ranks", action="store_true", dest="simulate_ranks",
        help="Run tests of torch's MultiProcessTestCase, MultiThreadedTestCase and "
        "MultiProcContinuousTest on a simulated machine, in this process.",
    )  # fmt: skip
    group.addoption(
        "--simulate-device", choices=["cpu", "cuda"], default="cpu", dest="simulate_device",
        help="Device that those tests hear of. Default: cpu.",
    )  # fmt: skip
    group.addoption(
        "--simulate-gpus", type=functools.partial(_read, kind="integer"), default=4,
        dest="simulate_gpus", metavar="N",
        help="Number of virtual GPUs with --simulate-device=cuda. Default: 4.",
    )  # fmt: skip
    group.addoption(
        "--simulate-judged", choices=["all", "values"], default="all", dest="simulate_judged",
        help="values: a test fails by its own assertions, deadlocks and mismatches alone, "
        "not by the order of its streams. Default: all.",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; with `--simulate-ranks`, change torch's base classes of tests."""
    config.addinivalue_line(
        "markers", f"{_MARK}: verifies a gradient synchronizer; set by the plugin"
    )
    config.addinivalue_line(
        "markers",
        f"{_RANKS}(count, *, device='cuda', schedules='default', judged='all'): "
        "runs the test on each rank of a simulated machine",
    )
    if not config.getoption("simulate_ranks"):
        return
    from syncverify.faces.simulation.testing.told_gpus import told_gpus

    device, num_gpus, judged = (
        config.getoption(f"simulate_{each}") for each in ("device", "gpus", "judged")
    )
    stack = ExitStack()
    config.add_cleanup(stack.close)
    if device == "cuda":  # torch's helpers of tests count GPUs when they are imported
        stack.enter_context(told_gpus(num_gpus))
    from syncverify.faces.simulation.testing.case import TestOptions
    from syncverify.faces.simulation.testing.torch_cases import simulated_torch_cases

    options = TestOptions(device=device, judged=judged)
    stack.enter_context(simulated_torch_cases(options, num_gpus))


@pytest.fixture
def rank() -> int:
    """Return the rank; `pytest_pyfunc_call` puts that of each rank in its place."""
    return -1


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run a test with the marker on each rank; fixtures were made once, for all of them."""
    __tracebackhide__ = True
    mark = pyfuncitem.get_closest_marker(_RANKS)
    if mark is None:
        return None
    from syncverify.faces.simulation.testing.case import TestOptions, play_test

    taken = inspect.signature(pyfuncitem.obj).parameters
    given = {
        name: pyfuncitem.funcargs[name] for name in taken if name in pyfuncitem.funcargs
    }

    def on_rank(rank: int) -> None:
        own = {"rank": rank} if "rank" in given else {}
        pyfuncitem.obj(**{**given, **own})

    if len(mark.args) != 1:
        pytest.fail(
            "expected the number of ranks: @pytest.mark.ranks(4)", pytrace=False
        )
    options = TestOptions(**mark.kwargs)
    play_test(on_rank, mark.args[0], options, name=pyfuncitem.nodeid)
    return True


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that use the fixture."""
    if _FIXTURE in getattr(item, "fixturenames", ()):
        item.add_marker(_MARK)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the result of a verification that failed; a simulation is its report alone."""
    error = None if call.excinfo is None else call.excinfo.value
    verification = sys.modules.get("syncverify.command.verification.verify")
    if verification is not None and isinstance(
        error, (verification.PropertyViolation, verification.CoverageGap)
    ):
        item.user_properties += _properties(error.report)  # also without the fixture
    report = yield
    simulation = sys.modules.get("syncverify.faces.simulation.simulation")
    if simulation and call.excinfo and report.failed:
        error = call.excinfo.value  # of `unittest`, pytest learns it while it reports
        if isinstance(error, simulation.ProgramIsWrongError):
            report.longrepr = str(error)  # no single line of the test is at fault
    return report


def _properties(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the properties of a test that verified a subject."""
    from syncverify.report import annotations
    from syncverify.report.run import account_of
    from syncverify.report.text import verdict
    from syncverify.trace.source_lines import shown_path

    yield "syncverify.subject", report.subject
    yield "syncverify.backend", report.backend
    yield "syncverify.seed", str(report.seed)
    yield "syncverify.examples", str(report.examples)
    yield _VERDICT, verdict(report)
    for each in account_of(report).explanations:
        line = annotations.guilty_line(each.lines, report.subject)
        path = annotations.path_in_checkout(line.file) if line else ""
        place = f"{path or shown_path(str(line.file))}:{line.number}: " if line else ""
        words = f"{each.title}: {each.summary}"
        yield _VIOLATION, f"{place}{words}"
        if os.environ.get("GITHUB_ACTIONS") == "true":
            yield _ANNOTATION, annotations.workflow_command(words, *(line or ()))
        yield _REPLAY, each.replay


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the verdict of each verification, and annotations for GitHub."""
    reports = [
        report
        for group in terminalreporter.stats.values()
        for report in group
        if isinstance(report, pytest.TestReport) and report.when == "call"
    ]
    found = [each for each in reports if _VERDICT in dict(each.user_properties)]
    heads = {_VERDICT: "  ", _REPLAY: "  replay: "}
    if found and terminalreporter.verbosity >= 0:
        terminalreporter.section("syncverify")
        for report in found:
            terminalreporter.write_line(report.nodeid)
            for name, value in report.user_properties:
                if name in heads:
                    terminalreporter.write_line(f"{heads[name]}{value}")
    for report in found:
        for name, value in report.user_properties:
            if name == _ANNOTATION:
                terminalreporter.write_line(str(value))


class _LiveLine(SilentProgress):
    """A line of progress below the tests, on a terminal, once a verification takes long.

    The number of violations comes with `played`, and the diagnosis at the end.
    """

    def __init__(self, config: pytest.Config, total: int) -> None:
        manager = config.pluginmanager
        self._reporter: Any = manager.get_plugin("terminalreporter")
        self._capture: Any = manager.get_plugin("capturemanager")
        self._total = total
        self._started = time.monotonic()
        self._due = self._started + _QUIET_SECONDS
        self._is_shown = False

    def __enter__(self) -> _LiveLine:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._is_shown:
            self._write("", erase=True)
            self._write("")  # the cursor is back at the start of the line

    @override
    def played(self, num_examples: int, num_violations: int) -> None:
        spent = time.monotonic() - self._started
        left = spent / max(1, num_examples) * (self._total - num_examples)
        self._show(
            f"{num_examples} of {self._total} scenarios, {counted(num_violations, 'violation')}, "
            f"about {left:.0f} s left"
        )

    @override
    def shrinking(self, identity: Identity, num_runs: int) -> None:
        self._show(f"shrinking {identity[0]} ({identity[1]}), {num_runs} runs")

    def _show(self, words: str) -> None:
        now = time.monotonic()
        if getattr(self._reporter, "isatty", False) and now >= self._due:
            self._due = now + _REDRAW_SECONDS
            self._write(f"syncverify: {words}", erase=True)

    def _write(self, line: str, **how: bool) -> None:
        with self._capture.global_and_fixture_disabled():
            if not self._is_shown:
                self._reporter.ensure_newline()
            self._is_shown = True
            self._reporter.rewrite(line, **how)
