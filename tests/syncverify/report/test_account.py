"""One value for the report of each face, and one writer each: no face has an own dict, or page."""

import ast
from pathlib import Path

import pytest

import syncverify.report
from syncverify.report.account import Account, Explanation

REPORT = Path(syncverify.report.__file__).parent
# What only the writers of an account may say.
KEYS = {"schema", "statement", "hint", "replay"}
ONE = Explanation(
    property="p", cause="c", statement="it holds", summary="it broke\non rank 0",
    ranks=(0,), hint="mend it", token="sv2-a", facts={"harm": (float("inf"), 1.0)},
)  # fmt: skip


def writers(source: str) -> list[str]:
    """Return what a second writer would have: keys of a report's JSON, or a template engine."""
    found = list[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            found += (
                k.value
                for k in node.keys
                if isinstance(k, ast.Constant) and k.value in KEYS
            )
        if isinstance(node, ast.Import):
            found += (each.name for each in node.names if each.name == "jinja2")
    return found


def test_there_is_one_writer_of_json_and_one_of_pages() -> None:
    listed = {
        file.relative_to(REPORT).as_posix(): writers(file.read_text())
        for file in REPORT.rglob("*.py")
    }
    assert {name: {*keys} for name, keys in listed.items() if keys} == {
        "account.py": {"schema", "hint", "replay"},
        "html/render.py": {"jinja2"},
    }


@pytest.mark.parametrize("planted", ['{"schema": 1}', "import jinja2"])
def test_a_second_writer_is_seen(planted: str) -> None:
    assert writers(planted)


def test_each_writer_has_the_same_facts() -> None:
    account = Account(
        subject="job.py:step", verdict="1 VIOLATION", is_right=False, explanations=[ONE],
        remarks=["look"], notes=["note"], facts={"ranks": 2, "refused": "", "layouts": []},
    )  # fmt: skip
    assert account.text() == (
        "VIOLATION: p (c)\n  it holds\n\n  it broke\n  on rank 0\n  hint:       mend it\n\n"
        "REMARK: look\n\nnote\n\n1 VIOLATION"
    )
    data = account.to_json()
    assert (data["schema"], data["right"], data["ranks"]) == (3, False, 2)
    (violation,) = data["violations"]
    assert (violation["harm"], violation["ranks"]) == (["inf", 1.0], [0])
    assert account.scalars == {"ranks": 2, "violations": 1}
    assert ONE.brief == "it broke\non rank 0\nhint: mend it"
