"""Mutants that change nothing that anybody can see, each with the reason why."""

import tomllib
from pathlib import Path

FILE = Path(__file__).with_name("equivalent.toml")


def reasons(file: Path = FILE) -> dict[str, str]:
    """Read which mutants are equivalent to the synchronizer as it is.

    Args:
        file: TOML, one `id = "reason"` a line.

    Returns:
        The reason by id.
    """
    return {
        name: str(reason)
        for name, reason in tomllib.loads(file.read_text(encoding="utf-8")).items()
    }
