"""Follow a page literally: write its files, run its commands, put their output into the page.

A page consists of text and of fenced blocks:

| block | step |
|---|---|
| `python title="FILE"` | write FILE |
| `diff title="FILE"` | change FILE |
| `console` | run the command after `$`, and show its output in the rest of the block |

`python -m studies.pages.followed docs/tutorial.md` follows a page in an empty folder and rewrites it.
Other blocks are left alone.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click

_ROOT: Final = Path(__file__).parents[2]
_BLOCK: Final = re.compile(
    r'^```(python|diff|console)(?: title="([\w.]+)")?\n(.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
_SECONDS: Final = re.compile(r"\b\d+\.\d+ ?s\b(?: \(\d+:\d\d:\d\d\))?")
_ROUNDING: Final = re.compile(r"\b\d+\.\d+ %(?= of what rounding explains)")
# Progress is printed from time to time.
_PROGRESS: Final = re.compile(r"^(searching|shrinking).*\n", re.MULTILINE)


def output_of(command: str, folder: Path) -> str:
    """Run a command in a folder, and return its output and its complaints."""
    return subprocess.run(
        shlex.split(command),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout


def followed(
    page: str, folder: Path, run: Callable[[str, Path], str] = output_of
) -> str:
    """Follow a page in an empty folder, and return it with the output of its commands.

    Args:
        page: Text of the page.
        folder: The folder.
        run: Runs a command in a folder, as `output_of` does.

    Returns:
        The page, with the output of today.
    """

    def step(block: re.Match[str]) -> str:
        kind, title, body = block.groups()
        file = folder / (title or "")
        if kind == "console":
            return f"```console\n{_shown(body, folder, run)}```"
        if title and kind == "python":
            file.write_text(body, encoding="utf-8")
        elif title:
            file.write_text(_changed(file.read_text("utf-8"), body), encoding="utf-8")
        return block.group()

    return _BLOCK.sub(step, page)


def rewrite(page: Path, folder: Path) -> None:
    """Follow a page in an empty folder, and write it if more than times has changed."""
    before = page.read_text("utf-8")
    after = followed(before, folder)
    if without_times(after) != without_times(before):
        page.write_text(after, encoding="utf-8")


def without_times(page: str) -> str:
    """Return a page without what depends on the machine: its speed and its instructions.

    torch sums in another order with AVX-512 than with AVX2, so shares of rounding differ.
    """
    return _ROUNDING.sub("# %", _SECONDS.sub("# s", _PROGRESS.sub("", page)))


def _shown(body: str, folder: Path, run: Callable[[str, Path], str]) -> str:
    """Run the command of a block, and return the block with its real output."""
    command = body.splitlines()[0].removeprefix("$ ")
    # A reader's copy lies elsewhere, so files of the checkout are named from its root.
    output = _PROGRESS.sub("", run(command, folder)).replace(f"{_ROOT}{os.sep}", "")
    lines = (line.rstrip() for line in output.splitlines())
    return "".join(f"{line}\n" for line in (f"$ {command}", *lines))


def environment() -> Mapping[str, str]:
    """Return an environment in which commands are those of this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # In CI, commands print in another form.
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    # pytest warns about the module of an editable install, which a reader does not have.
    quiet = "-W 'ignore:Module already imported so cannot be rewritten'"
    return {
        **kept,
        "PATH": path,
        "PYTEST_ADDOPTS": quiet,
        "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",
    }


def _changed(text: str, diff: str) -> str:
    """Apply a diff whose lines occur once in a text.

    Returns:
        The changed text.

    Raises:
        ValueError: They do not.
    """
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if not line.startswith("+"))
    new = "".join(line[1:] for line in lines if not line.startswith("-"))
    if text.count(old) != 1:
        raise ValueError(f"expected these lines once in the file:\n{old}")
    return text.replace(old, new)


@click.command()
@click.argument("pages", nargs=-1, type=click.Path(exists=True, path_type=Path))
def main(pages: tuple[Path, ...]) -> None:
    """Follow PAGES and write the output of their commands into them."""
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            rewrite(page, Path(folder))


if __name__ == "__main__":
    main()
