"""A skip and an expected failure say why."""

import ast
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
