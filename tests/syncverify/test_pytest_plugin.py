"""The plugin, in runs of pytest inside this process; their subjects fail at once."""

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from syncverify import PropertyViolation, pytest_plugin, verify

pytest_plugins = ["pytester"]

SUBJECT = """
class Raises:
    def __init__(self, groups, bucket_size_mb, require_accumulations): ...
    def bind(self): ...
    def wait(self):
        raise RuntimeError("100% wrong")
    def zero_grad(self): ...
    def unbind(self): ...
"""
TESTS = """
import pytest
import syncverify
from raising import Raises
from syncverify import check

few = {"ranks": 1, "examples": 1}
SCENARIO = syncverify.Scenario(
    syncverify.MeshSpec((1,), ("dp",)),
    (syncverify.ParameterSpec("p0", (), ("R",)),),
    (1,),
    8,
)

@check(Raises, **few)
def test_decorated(): ...

def test_plain():
    syncverify.verify(Raises, seed=0, **few)

def test_fixture(verify_subject):
    with pytest.raises(syncverify.PropertyViolation) as raised:
        verify_subject(Raises, **few)
    assert (raised.value.report.seed, raised.value.report.examples) == (0, 1)

class TestMine:
    @pytest.mark.parametrize("number", [1, 2])
    @check("synchronizer", **few)
    def test_body(self, tmp_path, number):
        assert number == 1

@check("absent:Synchronizer")
def test_absent(): ...

def test_played():
    syncverify.assert_right(syncverify.play(SCENARIO, Raises))

def test_verified_missing():
    syncverify.verify("missing:Synchronizer")
"""
Run = Callable[..., pytest.RunResult]


@pytest.fixture(scope="module")
def loaded() -> None:
    """Import all of torch that a verification needs: an inner run forgets its imports."""
    verify("synchronizer", ranks=1, examples=1, seed=0)
    with pytest.raises(PropertyViolation):
        verify(_FailsAtOnce, ranks=1, examples=1, seed=0)


class _FailsAtOnce:
    def __init__(self, *_arguments: object) -> None: ...
    def bind(self) -> None:
        raise RuntimeError

    def wait(self) -> None: ...
    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


@pytest.fixture
def run(
    loaded: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Run:
    pytester.makepyfile(raising=SUBJECT, test_mine=TESTS)
    pytester.syspathinsert()
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return pytester.runpytest_inprocess


def test_diagnosis_comes_first_and_no_line_is_ours(run: Run) -> None:
    shown = run("-k", "decorated or absent")
    text = shown.stdout.str()
    assert "pytest_plugin.py" not in text
    assert "/syncverify/" not in text
    shown.stdout.fnmatch_lines(
        [
            "    @check(Raises, **few)",
            ">   def test_decorated(): ...",
            "E   syncverify.PropertyViolation: every_rank_finishes: rank 0 raised *",
            "test_mine.py:15: PropertyViolation",
            "E   *.SubjectError: subject 'absent:Synchronizer' cannot be imported: *",
            "*= syncverify =*",
            "test_mine.py::test_decorated",
            "  1 VIOLATION: raising.py:Raises (1 scenario on sim, seed 0, * s)",
            "  replay: syncverify replay sv2-* raising.py:Raises",
            "FAILED test_mine.py::test_decorated - *every_rank_finishes: rank 0 raised *",
            "*2 failed*",
        ]
    )


@pytest.mark.parametrize(
    ("test", "error"),
    [
        ("played", "AssertionError: every_rank_finishes: rank 0 raised *"),
        (
            "verified_missing",
            "*.SubjectError: subject 'missing:Synchronizer' cannot be *",
        ),
        ("plain", "syncverify.PropertyViolation: every_rank_finishes: rank 0 raised *"),
    ],
)
def test_no_line_of_the_harness_is_shown(run: Run, test: str, error: str) -> None:
    shown = run("-k", test)
    shown.assert_outcomes(failed=1, deselected=7)
    shown.stdout.fnmatch_lines([">       syncverify.*", f"E       {error}"])
    assert "/syncverify/" not in shown.stdout.str()
    assert "contextlib.py" not in shown.stdout.str()


def test_decorator_keeps_marks_fixtures_and_body(run: Run) -> None:
    shown = run("-m", "syncverify", "-k", "body or fixture", "-rA")
    shown.assert_outcomes(passed=2, failed=1, deselected=5)
    shown.stdout.fnmatch_lines(
        [
            ">       assert number == 1",
            "E       assert 2 == 1",
            "  NO VIOLATION: synchronizer held all properties *",
        ]
    )


def test_options_count_more_than_the_test(run: Run, pytester: pytest.Pytester) -> None:
    options = ["--syncverify-seed=7", "--syncverify-examples=2", "--junitxml=all.xml"]
    run("-k", "body and 1", *options)
    (case,) = ElementTree.parse(pytester.path / "all.xml").iter("properties")
    properties = {each.get("name"): each.get("value") for each in case}
    assert properties["syncverify.subject"] == "synchronizer"
    assert properties["syncverify.seed"] == "7"
    assert properties["syncverify.examples"] == "2"


def test_options_of_a_search_reach_it(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_options="""
def test_it(verify_subject):
    report = verify_subject("synchronizer", ranks=1, examples=2)
    print(report.contract_choice, report.coverage["ranks"])
"""
    )
    options = ["--syncverify-ranks=2", "--syncverify-contract=everything"]
    shown = run("test_options.py", "-rP", *options, "--syncverify-time-limit=0.0000001")
    shown.stdout.fnmatch_lines(["E   *CoverageGap: no scenario was judged, *"])
    shown = run("test_options.py", "-rP", *options)
    shown.stdout.fnmatch_lines(["everything {*'2': *"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--syncverify-examples=0", "expected a positive number, got '0'"),
        (
            "--syncverify-time-limit=soon",
            "expected seconds from 0 to 604800, got 'soon'",
        ),
        ("--syncverify-contract=.", "expected a name or a file, got '.'"),
    ],
)
def test_an_option_that_cannot_hold_ends_the_run_in_one_line(
    run: Run, option: str, message: str
) -> None:
    shown = run(option)
    assert shown.ret == pytest.ExitCode.USAGE_ERROR
    name = option.partition("=")[0]
    (error,) = [line for line in shown.errlines if ": error: " in line]
    assert error.endswith(f": error: argument {name}: {message}")
    assert not shown.outlines  # nothing is collected


def test_violation_of_a_direct_call_is_annotated(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    shown = run("-q", "-k", "plain")
    (line,) = (line for line in shown.outlines if line.startswith("::"))
    assert line == (
        "::error file=raising.py,line=5,title=syncverify::every_rank_finishes "
        "(raised_RuntimeError): rank 0 raised RuntimeError in step 0, wait: 100%25 wrong"
    )


def test_progress_is_shown_on_a_terminal_and_erased(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest_plugin, "_QUIET_SECONDS", 0)
    pytester.makeconftest(
        "def pytest_sessionstart(session):\n"
        "    manager = session.config.pluginmanager\n"
        "    manager.get_plugin('terminalreporter').isatty = lambda: True\n"
    )
    lines = run("-k", "decorated").stdout.str().replace("\r", "\n").splitlines()
    shown = [line for line in lines if line.startswith("syncverify: ")]
    assert shown[0].startswith("syncverify: 1 of 1 scenarios, 1 violation, about 0 ")
    assert lines[lines.index(shown[-1]) + 1].strip() == ""


def test_results_cross_the_processes_of_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "def test_it(request):\n"
        "    seed = request.config.getoption('syncverify_seed')\n"
        "    verdict = ('syncverify.verdict', f'NO VIOLATION, seed {seed}')\n"
        "    request.node.user_properties.append(verdict)\n"
    )
    shown = pytester.runpytest_subprocess("-n1", "--syncverify-seed=7")
    shown.stdout.fnmatch_lines(["*= syncverify =*", "  NO VIOLATION, seed 7"])
