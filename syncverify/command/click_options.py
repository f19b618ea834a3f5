"""The options and arguments of click, made from the rows of a face.

No torch is imported here: see Note [Late imports] in `options.py`.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

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
            if row is None:
                continue
            if row.kind in {"argument", "arguments"}:
                nargs = -1 if row.kind == "arguments" else 1
                is_required = nargs == 1 and each.default is MISSING
                add = click.argument(each.name, nargs=nargs, required=is_required)
                command = add(command)
            elif row.option:
                command = _option(each.name, row, each.default)(command)
        return command

    return decorate


def _in_order(face: type[Any]) -> list[Field[Any]]:
    """Return the fields of a face, those of its report last."""
    of_report = {each.name for each in fields(ReportOptions)}
    return sorted(fields(face), key=lambda each: each.name in of_report)


def _option(name: str, row: Setting, default: Any) -> Callable[[Command], Command]:
    shown = f"  [default: {row.shown_default}]" if row.shown_default else ""
    shows_value = not (shown or row.kind == "flag" or default in (None, "", ()))
    how: dict[str, Any] = {
        "default": None if shown or default == "" else default,
        "show_default": shows_value,
        "metavar": row.metavar,
        "help": f"{row.meaning}{shown}",
        "multiple": row.is_repeatable,
        **_type_of(row),
    }
    words = (e if e.startswith("-") else f"--{e}" for e in row.option.split())
    return click.option(*words, name, **how)


def _type_of(row: Setting) -> dict[str, Any]:
    if row.kind == "choice":
        return {"type": click.Choice(row.choices)}
    if row.kind == "integer" and row.least is not None:
        return {"type": _WholeNumber(row.least, row.most)}
    return _TYPES.get(row.kind, {})


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


_TYPES: Final[dict[str, dict[str, Any]]] = {
    "flag": {"is_flag": True},
    "integer": {"type": click.INT},
    "number": {"type": _FiniteNumber(min=0)},
    "positive": {"type": _FiniteNumber(min=0, min_open=True)},
    "seconds": {
        "type": _FiniteNumber(min=0, max=bounds.MAX_SECONDS, min_open=True),
        "metavar": "SECONDS",
    },
    "percent": {"type": _FiniteNumber(0, 100), "metavar": "PERCENT"},
    "file": {"type": click.Path(dir_okay=False, path_type=Path)},
    "path": {"type": click.Path(path_type=Path)},
    "folder": {"type": click.Path(file_okay=False, path_type=Path)},
    "folder or server": {"type": _FolderOrServer(file_okay=False, path_type=Path)},
}


def examples(*lines: str) -> str:
    """Return the end of a help: calls of the command, as they are typed."""
    lines = ("Examples:", *(f"  syncverify {line}" for line in lines))
    return "\b\n" + "\n".join(lines)
