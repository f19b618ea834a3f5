"""Facts about releases that pages may state, each with one home."""

import re
import tomllib
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from studies.releases.release_table import ReleaseTable

ROOT: Final = Path(__file__).parents[2]


def facts(table: ReleaseTable) -> dict[str, str]:
    """Return all facts, each by its name in a mark.

    | name | home |
    |---|---|
    | `newest PACKAGE`, `python PACKAGE`, `asked` | the table of releases |
    | `pinned torch` | constraints.txt |
    | `least torch`, `least python` | pyproject.toml |
    """
    found = {"asked": table.date, **_of_project()}
    for name, release in table.newest.items():
        found[f"newest {name}"] = release.version
        found[f"python {name}"] = release.python.removeprefix(">=")
    return found


def _of_project() -> dict[str, str]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    (torch,) = (
        needed
        for needed in map(Requirement, project["dependencies"])
        if needed.name == "torch"
    )
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (pinned,) = re.findall(r"^torch==(\S+)$", pins, re.MULTILINE)
    return {
        "pinned torch": pinned,
        "least torch": str(torch.specifier).removeprefix(">="),
        "least python": project["requires-python"].removeprefix(">="),
    }
