"""The execution of `syncverify init`: write an adapter, its test and its contract into a folder."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final

import click

from syncverify.errors import UsageError
from syncverify.scenario.feature_table import TABLE_VERSION

_TEMPLATES: Final = resources.files(__package__) / "templates"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One kind of synchronizer that can be wrapped."""

    adapter: str  # its name in the template
    backend: str = "sim"  # of the test
    examples: int = 100  # scenarios that the test plays


# By the value of `--like`. A process takes seconds to start, so gloo plays fewer scenarios.
RECIPES: Final = {
    "ddp": Recipe("DataParallelSubject"),
    "hooks": Recipe("HookReducerSubject"),
    "optimizer": Recipe("ShardedOptimizerSubject"),
    "globals": Recipe("FrameworkSubject", backend="gloo", examples=20),
}


def execute(folder: Path, like: str) -> None:
    """Write the files, and print the next command.

    Raises:
        UsageError: A file exists already, or cannot be written.
    """
    texts = _texts(like)
    for name in texts:
        if (folder / name).exists():
            raise UsageError(
                f"{str(folder / name)!r} exists already, and nothing was written; "
                "hint: name another folder"
            )
    for name, text in texts.items():
        _write(folder / name, text)
        click.echo(f"wrote {folder / name}")
    click.echo(f"next: pytest {folder}")


def _texts(like: str) -> dict[str, str]:
    """Return the content of each file, by its name."""
    recipe = RECIPES[like]
    values = {
        "adapter": recipe.adapter,
        "backend": recipe.backend,
        "examples": str(recipe.examples),
        "table_version": str(TABLE_VERSION),
    }
    templates = {
        "my_subject.py": f"{like}.py.txt",
        "test_my_subject.py": "test.py.txt",
        "contract.toml": "contract.toml.txt",
    }
    return {
        name: Template((_TEMPLATES / file).read_text("utf-8")).substitute(values)
        for name, file in templates.items()
    }


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {str(file)!r}: {error.strerror}") from error
