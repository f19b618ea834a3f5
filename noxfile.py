"""Versions of Python and torch under test, for local runs and for CI.

`nox --list` shows the sessions, `nox` runs those with an installed Python and names the others,
and .github/workflows/ci.yml reads `nox --list --json`. The pairs are stated once, in the table
`[tool.versions]` of pyproject.toml.
"""

import re
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PAIRS = [tuple(pair) for pair in PROJECT["tool"]["versions"]["pairs"]]
# A release of torch bounds setuptools, so the pin of one fits no other release.
PINNED_TOGETHER = re.compile(r"^(torch|setuptools)==.*\n", re.MULTILINE)
PARALLEL = ("-q", "-n", "auto", "--dist", "worksteal")
ALL_NIGHTLY = 5  # pytest selects no test in a file whose tests are all marked `nightly`


def constraints(session: nox.Session, torch: str) -> Path:
    """Return constraints.txt, or a copy without the pins that fit one torch only."""
    pins = ROOT / "constraints.txt"
    text = pins.read_text()
    if f"\ntorch=={torch}\n" in text:
        return pins
    loose = Path(session.create_tmp()) / "constraints.txt"
    loose.write_text(PINNED_TOGETHER.sub("", text))
    return loose


@nox.session
@nox.parametrize(("python", "torch"), PAIRS)
def tests(session: nox.Session, torch: str) -> None:
    """Run all tests and write docs/versions.md; `-- quick` runs those of `make test` alone.

    Other arguments go to pytest, and the page stays as it is.
    """
    pins = constraints(session, torch)
    session.install("-c", str(pins), "-e", ".[test]", f"torch=={torch}")
    if session.posargs not in ([], ["quick"]):
        session.run("pytest", *session.posargs)
        return
    chosen = session.posargs and ["-m", "not long"]
    file = Path(session.create_tmp()) / "junit.xml"
    file.unlink(missing_ok=True)
    try:
        session.run("pytest", *PARALLEL, *chosen, f"--junit-xml={file}")
    finally:  # the page tells of failures too
        if file.exists():
            kind = "quick" if chosen else "all"
            session.run(
                "python", "-m", "studies.pages.versions", str(file), "--tests", kind
            )


@nox.session(python=PAIRS[0][0])
def alone(session: nox.Session) -> None:
    """Run each test file in a process of its own; arguments after `--` name files.

    A test that is green only after another file has run is red here.
    """
    session.install("-c", str(constraints(session, PAIRS[0][1])), "-e", ".[test]")
    files = session.posargs or sorted(map(str, ROOT.glob("tests/**/test_*.py")))
    red = [file for file in files if not _is_green(session, file)]
    if red:
        session.error("red alone: " + ", ".join(red))


def _is_green(session: nox.Session, file: str) -> bool:
    try:
        session.run("pytest", "-q", "-n", "0", file, success_codes=[0, ALL_NIGHTLY])
    except nox.command.CommandFailed:
        return False
    return True
