"""Options that several commands share, and the kinds of options that they are made of.

No torch is imported here: see Note [Late imports] in `options.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from syncverify import bounds
from syncverify.command.number_types import WholeNumber
from syncverify.defaults import BACKEND_NAMES

Option = Callable[[Callable[..., Any]], Callable[..., Any]]


def backend_option(*names: str) -> Option:
    """Return the option that chooses a backend among some."""
    return click.option(
        "--backend", type=click.Choice(names), default="sim", show_default=True,
        help="Where the ranks run.",
    )  # fmt: skip


def examples(*lines: str) -> str:
    """Return the end of a help: calls of the command, as they are typed."""
    return "\b\n" + "\n".join(
        ["Examples:", *(f"  syncverify {line}" for line in lines)]
    )


def number_option(
    name: str, default: int | None, words: str, least: int = 1, most: int | None = None
) -> Option:
    """Return an option that is an integer from `least` to `most`."""
    return click.option(
        name, type=WholeNumber(least, most), default=default,
        show_default=default is not None, help=words,
    )  # fmt: skip


def count_option(name: str, default: int, words: str, least: int = 1) -> Option:
    """Return an option that is a number of things to play."""
    return number_option(name, default, words, least, bounds.MAX_COUNT)


def jobs_option(words: str) -> Option:
    """Return the option of processes side by side."""
    return number_option("--jobs", 1, words, most=bounds.MAX_JOBS)


def seed_option(default: int) -> Option:
    """Return the option of the seed."""
    return number_option("--seed", default, "Same seed, same scenarios.", least=0)


subject_argument = click.argument("subject")
any_backend = backend_option(*BACKEND_NAMES)
backend_with_data = backend_option("sim", "gloo")
contract_option = click.option(
    "--contract", default=None, metavar="NAME|FILE",
    help="What SUBJECT promises: plain, everything, a built-in subject's name, or a "
    "TOML file.  [default: the subject's own, or plain]",
)  # fmt: skip
json_file = click.Path(dir_okay=False, path_type=Path)


def json_option(words: str) -> Option:
    """Return the option of a JSON file."""
    return click.option("--json", "json_path", type=json_file, default=None, help=words)


report_option = json_option("Write the report here.")
format_option = click.option(
    "--format", "shown_as", type=click.Choice(["text", "github"]), default="text",
    show_default=True,
    help="github: also annotate each violation at its line of code.",
)  # fmt: skip


def replay_files(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of files that show a violation once more."""
    options = (
        ("--html", "html_path", "Write the report here as a page with timelines."),
        ("--trace", "trace_path", "Write the first violation here, for Perfetto."),
        (
            *("--flight-recorder", "dumps_path"),
            "Write the first violation into this folder, as torch's recorder dumps it.",
        ),
    )
    for name, variable, words in reversed(options):
        kind = click.Path(path_type=Path) if variable == "dumps_path" else json_file
        option = click.option(
            name, variable, type=kind, default=None, metavar="PATH", help=words
        )
        command = option(command)
    return command
