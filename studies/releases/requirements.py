"""Requirements of an environment with the newest release of each peer.

    python -m studies.releases.requirements 3.12

prints the releases of the stored table that Python 3.12 takes, and names the others on stderr.
The peers are the extra `peers` of pyproject.toml.
"""

import sys
import tomllib

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from studies.releases.facts import ROOT
from studies.releases.release_table import ReleaseTable


def peers() -> list[str]:
    """Return the packages of the extra `peers`."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    return [Requirement(each).name for each in extras["peers"]]


def requirements(table: ReleaseTable, python: str) -> tuple[list[str], list[str]]:
    """Return the newest releases of torch and of the peers, for one Python.

    Args:
        table: Newest releases.
        python: Version of Python, such as "3.12".

    Returns:
        Requirements, and a sentence for each release that needs another Python.
    """
    taken, left = list[str](), list[str]()
    for name in ["torch", *peers()]:
        release = table.newest[name]
        if SpecifierSet(release.python).contains(python):
            taken.append(f"{name}=={release.version}")
        else:
            left.append(
                f"{name} {release.version} is left out: it needs Python {release.python}, and "
                f"this is {python}; try: make PYTHON=python3.12"
            )
    return taken, left


def main(python: str) -> None:
    """Print the requirements on stdout, and what is left out on stderr."""
    taken, left = requirements(ReleaseTable.read(), python)
    sys.stdout.write("".join(f"{line}\n" for line in taken))
    sys.stderr.write("".join(f"{line}\n" for line in left))


if __name__ == "__main__":
    main(*sys.argv[1:])
