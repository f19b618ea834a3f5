"""No test is skipped, or expected to fail, without saying why."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MARKS = {f"pytest.mark.{name}" for name in ("skip", "skipif", "xfail")}
CALLS = {"pytest.skip", "pytest.xfail", "pytest.importorskip"}


def gives_reason(call: ast.Call, name: str) -> bool:
    """A reason is `reason=`, or what `skip` and `xfail` take in first place."""
    reasons = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
    if name in {"pytest.mark.skip", "pytest.skip", "pytest.xfail"}:
        reasons += call.args[:1]
    return any(
        not isinstance(reason, ast.Constant) or bool(str(reason.value or "").strip())
        for reason in reasons
    )


def unexplained(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each skip or xfail that gives no reason."""
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


def test_skips_and_xfails_say_why() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{line}: {name} without a reason"
        for file in sorted(TESTS.rglob("*.py"))
        for line, name in unexplained(file.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.skip\ndef test(): ...",
        "@pytest.mark.skip()\ndef test(): ...",
        "@pytest.mark.skipif(True)\ndef test(): ...",
        "@pytest.mark.xfail(strict=True)\ndef test(): ...",
        "pytest.param(1, marks=pytest.mark.xfail)",
        "pytest.mark.skip(reason=' ')",
        "pytest.skip()",
        "pytest.importorskip('d9d')",
    ],
)
def test_planted_mistake_is_found(source: str) -> None:
    assert len(list(unexplained(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.skipif(count() < 2, reason='needs 2 GPUs')\ndef test(): ...",
        "pytest.skip(f'needs {n} GPUs')",
        "pytest.importorskip('d9d', reason='no d9d here')",
        "@pytest.mark.slow\ndef test(): ...",
    ],
)
def test_explained_skip_is_fine(source: str) -> None:
    assert list(unexplained(source)) == []
