"""Options that several commands share, and the kinds of options that they are made of.

No torch is imported here: see Note [Late imports] in `options.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from typing_extensions import override

from syncverify.scenario import bounds
from syncverify.scenario.settings import (
    BACKEND_NAMES,
    DEFAULTS,
    REPORT_DOCUMENTS,
    REPORT_FORMATS,
    SETTINGS,
    Setting,
)

Option = Callable[[Callable[..., Any]], Callable[..., Any]]


class WholeNumber(click.IntRange):
    """An integer from a least to a largest one; errors speak of numbers."""

    name = "whole number"


class FiniteNumber(click.FloatRange):
    """A number within bounds; neither NaN, which no bound refuses, nor infinity."""

    name = "number"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


SECONDS = FiniteNumber(min=0, max=bounds.MAX_SECONDS, min_open=True)


class _FolderOrServer(click.Path):
    """A folder, or the address of a server of Redis, which stays a text."""

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        is_server = isinstance(value, str) and "://" in value
        return value if is_server else super().convert(value, param, ctx)


def setting_option(name: str, **changes: Any) -> Option:
    """Return the option of a setting; `changes` are other arguments of `click.option`."""
    setting, default = SETTINGS[name], DEFAULTS[name]
    words = f"  [default: {setting.default}]" if setting.default else ""
    how: dict[str, Any] = {
        "default": default,
        "show_default": default is not None and setting.kind != "flag",
        "metavar": setting.metavar,
        "help": f"{setting.meaning}{words}",
        **_type_of(setting),
        **changes,
    }
    return click.option(f"--{setting.option}", name, **how)


def _type_of(setting: Setting) -> dict[str, Any]:
    match setting.kind:
        case "choice":
            return {"type": click.Choice(BACKEND_NAMES)}
        case "integer":
            return {"type": WholeNumber(setting.least, setting.most)}
        case "seconds":
            return {"type": SECONDS, "metavar": "SECONDS"}
        case "percent":
            return {"type": FiniteNumber(0, 100), "metavar": "PERCENT"}
        case "folder":
            return {"type": _FolderOrServer(file_okay=False, path_type=Path)}
        case "flag":
            return {"is_flag": True}
    return {}


def setting_options(**changes: Mapping[str, Any]) -> Option:
    """Add the options of all settings; `changes` of `click.option` are by their names."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, setting in reversed([*SETTINGS.items()]):
            if setting.option:
                command = setting_option(name, **changes.get(name, {}))(command)
        return command

    return add


def examples(*lines: str) -> str:
    """Return the end of a help: calls of the command, as they are typed."""
    return "\b\n" + "\n".join(
        ["Examples:", *(f"  syncverify {line}" for line in lines)]
    )


def count_option(name: str, default: int, words: str, least: int = 1) -> Option:
    """Return an option that is a number of things to play."""
    return click.option(
        name, type=WholeNumber(least, bounds.MAX_COUNT), default=default, show_default=True,
        help=words,
    )  # fmt: skip


def seed_option(default: int) -> Option:
    """Return the option of the seed."""
    words = SETTINGS["seed"].meaning
    return setting_option("seed", default=default, show_default=True, help=words)


def device_option(noun: str) -> Option:
    """Return the option of the device that torch names to a program or a script."""
    return click.option(
        "--device", type=click.Choice(("cuda", "cpu")), default="cuda", show_default=True,
        help=f"Device that torch names to the {noun}.",
    )  # fmt: skip


def hang_timeout_option(default: float) -> Option:
    """Return the option of the time without progress."""
    return click.option(
        "--hang-timeout", type=SECONDS, default=default,
        metavar="SECONDS", show_default=True,
        help="Time that a rank may compute without a call of torch, or that ranks only sleep.",
    )  # fmt: skip


names_torch_option = click.option(
    "--names-torch", is_flag=True, help="Name torch's own lines in the report too."
)
subject_argument = click.argument("subject")
backend_with_data = setting_option(
    "backend", type=click.Choice(("sim", "streams", "gloo"))
)
contract_option = setting_option("contract")
json_file = click.Path(dir_okay=False, path_type=Path)


def json_option(words: str) -> Option:
    """Return the option of a JSON file."""
    return click.option("--json", "json_path", type=json_file, default=None, help=words)


report_option = json_option("Write the report here.")
page_option = click.option(
    "--html", "html_path", type=json_file, default=None, metavar="PATH",
    help="Write the report here as a page with timelines.",
)  # fmt: skip
format_option = click.option(
    "--format", "shown_as", type=click.Choice([*REPORT_FORMATS]), default="text",
    show_default=True,
    help=" ".join(f"{name}: {words}" for name, words in REPORT_FORMATS.items() if words),
)  # fmt: skip


def document_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each document of a run."""
    for name, words in reversed(REPORT_DOCUMENTS.items()):
        command = click.option(
            f"--{name}", f"{name}_path", type=json_file, default=None, help=words
        )(command)
    return command


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
