"""The execution of `syncverify init`: write an adapter, its test and its contract into a folder."""

from importlib import resources
from pathlib import Path
from string import Template
from typing import Final

import click

from syncverify.errors import UsageError
from syncverify.scenario.feature_table import TABLE_VERSION

_TEMPLATES: Final = resources.files(__package__) / "templates"


# By the value of `--like`: the name of the adapter in its template.
ADAPTERS: Final = {
    "ddp": "DataParallelSubject",
    "hooks": "HookReducerSubject",
    "optimizer": "ShardedOptimizerSubject",
    "globals": "FrameworkSubject",
}
_TEMPLATE_NAMES: Final = {
    "my_subject.py": "{like}.py.txt",
    "test_my_subject.py": "test.py.txt",
    "contract.toml": "contract.toml.txt",
}


def execute(folder: Path, like: str) -> None:
    """Write the files and print the next command; raise UsageError for a file that exists."""
    for name in _TEMPLATE_NAMES:
        if (folder / name).exists():
            raise UsageError(
                f"{str(folder / name)!r} exists already, and nothing was written; "
                "hint: name another folder"
            )
    values = {"adapter": ADAPTERS[like], "table_version": TABLE_VERSION}
    # A process takes seconds to start, so the test plays fewer scenarios on gloo.
    of_test = {"backend": "sim", "examples": 100}
    if like == "globals":
        of_test = {"backend": "gloo", "examples": 20}
    for name, template in _TEMPLATE_NAMES.items():
        file = folder / name
        text = (_TEMPLATES / template.format(like=like)).read_text("utf-8")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(
                Template(text).substitute(values, **of_test), encoding="utf-8"
            )
        except OSError as error:
            raise UsageError(f"cannot write {str(file)!r}: {error.strerror}") from error
        click.echo(f"wrote {file}")
    click.echo(f"next: pytest {folder}")
