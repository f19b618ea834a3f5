"""Versions of Python and torch under test, for local runs and for CI.

`nox --list` shows the sessions, `nox` runs those with an installed Python, and
.github/workflows/ci.yml reads `nox --list --json`. The versions are stated once, elsewhere:

* Python: the classifiers in pyproject.toml.
* oldest torch: the lower bound in pyproject.toml.
* pinned torch: constraints.txt.
* newest torch: the newest release that the package index offers.
"""

import re
from pathlib import Path

import nox
from packaging.requirements import Requirement

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
# The old and the new torch each meet one Python; a full product would only repeat them.
VERSIONS = [
    (PYTHONS[0], "oldest"),
    *((python, "pinned") for python in PYTHONS),
    (PYTHONS[-1], "newest"),
]
# A release of torch bounds setuptools, so the pin of one fits no other release.
PINNED_TOGETHER = re.compile(r"^(torch|setuptools)==.*\n", re.MULTILINE)
ALL_NIGHTLY = 5  # pytest selects no test in a file whose tests are all marked `nightly`


def torch_requirement(torch: str) -> str:
    """Return the requirement for the torch named "oldest", "pinned" or "newest"."""
    needs = map(Requirement, PROJECT["project"]["dependencies"])
    (needed,) = (each for each in needs if each.name == "torch")
    (lower,) = needed.specifier
    return f"torch=={lower.version}.*" if torch == "oldest" else str(needed)


def constraints(session: nox.Session, torch: str) -> Path:
    """Return constraints.txt, or a copy without the pins that fit one torch only."""
    pins = ROOT / "constraints.txt"
    if torch == "pinned":
        return pins
    loose = Path(session.create_tmp()) / "constraints.txt"
    loose.write_text(PINNED_TOGETHER.sub("", pins.read_text()))
    return loose


@nox.session
@nox.parametrize(("python", "torch"), VERSIONS)
def tests(session: nox.Session, torch: str) -> None:
    """Run the tests; arguments after `--` replace `-n auto`."""
    pins = constraints(session, torch)
    session.install("-c", str(pins), "-e", ".[test]", torch_requirement(torch))
    session.run("pytest", *(session.posargs or ("-n", "auto")))


@nox.session(python=PYTHONS[0])
def alone(session: nox.Session) -> None:
    """Run each test file in a process of its own; arguments after `--` name files.

    A test that is green only after another file has run is red here.
    """
    session.install("-c", str(constraints(session, "pinned")), "-e", ".[test]")
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
