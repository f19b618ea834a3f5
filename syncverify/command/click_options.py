"""The options and arguments of click, made from the rows of a face.

No torch is imported here: see Note [Late imports] in `options.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar

import click
from typing_extensions import override

from syncverify.scenario import bounds
from syncverify.scenario.settings import ReportOptions, Setting

Face = TypeVar("Face")
Command = Callable[..., int | None]


def takes(face: type[Face]) -> Callable[[Callable[[Face], int | None]], Command]:
    """Give a command the arguments and options of a face; an option that is left out has its default."""

    def decorate(function: Callable[[Face], int | None]) -> Command:
        def called(**values: Any) -> int | None:
            given = {name: each for name, each in values.items() if each is not None}
            return function(face(**given))

        command: Command = functools.update_wrapper(called, function)
        for each in reversed(_in_order(face)):
            row = each.metadata.get("row")
            if row is not None and row.kind in {"argument", "arguments"}:
                nargs = -1 if row.kind == "arguments" else 1
                is_required = nargs == 1 and each.default is MISSING
                command = click.argument(each.name, nargs=nargs, required=is_required)(
                    command
                )
            elif row is not None and row.option:
                command = _option(each.name, row, each.default)(command)
        return command

    return decorate


def _in_order(face: type[Any]) -> list[Field[Any]]:
    """Return the fields of a face, those of its report last."""
    of_report = {each.name for each in fields(ReportOptions)}
    return sorted(fields(face), key=lambda each: each.name in of_report)


def _option(name: str, row: Setting, default: Any) -> Callable[[Command], Command]:
    words = f"  [default: {row.shown_default}]" if row.shown_default else ""
    shows_value = not (words or row.kind == "flag" or default in (None, "", ()))
    how: dict[str, Any] = {
        "default": None if words or default == "" else default,
        "show_default": shows_value,
        "metavar": row.metavar,
        "help": f"{row.meaning}{words}",
        "multiple": row.is_repeatable,
        **_type_of(row),
    }
    options = [
        each if each.startswith("-") else f"--{each}" for each in row.option.split()
    ]
    return click.option(*options, name, **how)


def _type_of(row: Setting) -> dict[str, Any]:
    match row.kind:
        case "choice":
            return {"type": click.Choice(row.choices)}
        case "integer" if row.least is None:
            return {"type": click.INT}
        case "integer":
            return {"type": _WholeNumber(row.least, row.most)}
        case "number":
            return {"type": _FiniteNumber(min=0)}
        case "positive":
            return {"type": _FiniteNumber(min=0, min_open=True)}
        case "seconds":
            seconds = _FiniteNumber(min=0, max=bounds.MAX_SECONDS, min_open=True)
            return {"type": seconds, "metavar": "SECONDS"}
        case "percent":
            return {"type": _FiniteNumber(0, 100), "metavar": "PERCENT"}
        case "file":
            return {"type": click.Path(dir_okay=False, path_type=Path)}
        case "path":
            return {"type": click.Path(path_type=Path)}
        case "folder":
            return {"type": click.Path(file_okay=False, path_type=Path)}
        case "folder or server":
            return {"type": _FolderOrServer(file_okay=False, path_type=Path)}
        case "flag":
            return {"is_flag": True}
    return {}


class _WholeNumber(click.IntRange):
    """An integer from a least to a largest one; errors speak of numbers."""

    name = "whole number"


class _FiniteNumber(click.FloatRange):
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


class _FolderOrServer(click.Path):
    """A folder, or the address of a server of Redis, which stays a text."""

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        is_server = isinstance(value, str) and "://" in value
        return value if is_server else super().convert(value, param, ctx)


def examples(*lines: str) -> str:
    """Return the end of a help: calls of the command, as they are typed."""
    return "\b\n" + "\n".join(
        ["Examples:", *(f"  syncverify {line}" for line in lines)]
    )
