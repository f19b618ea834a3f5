"""The checkout: the folder to which code hosts count the paths of files."""

from __future__ import annotations

import os
from pathlib import Path


def checkout() -> Path:
    """Return the root of the checkout around the working directory.

    GitHub names it; else it is the nearest folder with `.git`, or the working directory.
    """
    here = Path.cwd()
    named = os.environ.get("GITHUB_WORKSPACE", "")
    if named and here.is_relative_to(named := str(Path(named).resolve())):
        return Path(named)
    parents = (here, *here.parents)
    return next((each for each in parents if (each / ".git").exists()), here)


def path_in_checkout(file: Path) -> str:
    """Return the path of a file from the root of the checkout; "" for a file of others.

    Installed packages are files of others, also in an environment inside of the checkout.
    """
    root = checkout()
    if not file.is_relative_to(root) or "site-packages" in file.parts:
        return ""
    return file.relative_to(root).as_posix()
