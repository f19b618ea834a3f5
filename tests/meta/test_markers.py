"""A skip, an expected failure and a long test say so."""

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MARKS = {f"pytest.mark.{name}" for name in ("skip", "skipif", "xfail")}
CALLS = {"pytest.skip", "pytest.xfail", "pytest.importorskip"}


def gives_reason(call: ast.Call, name: str) -> bool:
    """Tell whether a call has `reason=`, or a first argument of `skip` or `xfail`."""
    reasons = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
    if name in {"pytest.mark.skip", "pytest.skip", "pytest.xfail"}:
        reasons += call.args[:1]
    return any(
        not isinstance(reason, ast.Constant) or bool(str(reason.value or "").strip())
        for reason in reasons
    )


def unexplained(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each skip or xfail that gives no reason."""
    if "skip" not in source and "xfail" not in source:
        return
    tree = ast.parse(source)
    explained = {
        call.func
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and gives_reason(call, ast.unparse(call.func))
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node in explained:
            continue
        if (name := ast.unparse(node)) in MARKS | CALLS:
            yield node.lineno, name


@pytest.mark.long
def test_skips_and_xfails_say_why() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{line}: {name} without a reason"
        for file in sorted(TESTS.rglob("*.py"))
        for line, name in unexplained(file.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("@pytest.mark.skip\ndef test(): ...", 1),
        ("@pytest.mark.skipif(True)\ndef test(): ...", 1),
        ("pytest.param(1, marks=pytest.mark.xfail)", 1),
        ("pytest.mark.skip(reason=' ')", 1),
        ("pytest.importorskip('d9d')", 1),
        ("@pytest.mark.skipif(count() < 2, reason='needs 2 GPUs')\ndef test(): ...", 0),
        ("pytest.skip(f'needs {n} GPUs')", 0),
        ("pytest.importorskip('d9d', reason='no d9d here')", 0),
    ],
)
def test_planted_mistake_is_found(source: str, count: int) -> None:
    assert len(list(unexplained(source))) == count


def test_long_test_without_a_mark_fails_in_ci(
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    assert conftest is not None

    def judge(seconds: float) -> None:
        clock = iter([5.0, 5.0 + seconds])
        # Undone at once: the clock of this very test runs on.
        with monkeypatch.context() as patched, contextlib.suppress(StopIteration):
            patched.setenv("CI", "true")
            patched.setattr(conftest, "cpu_seconds", clock.__next__)
            test = conftest.pytest_runtest_call(request.node)
            next(test)
            test.send(None)

    judge(5.9)
    with pytest.raises(pytest.fail.Exception, match=r"6\.1 s of CPU time"):
        judge(6.1)
    request.node.add_marker("slow")
    judge(60.0)
