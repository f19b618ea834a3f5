"""Tokens of programs that are no scenario: a function, a training, a script.

The program itself is named beside its token, as the subject of a scenario is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from syncverify.scenario.validation import check_names

# Commands that play a program.
Face = Literal["simulate", "parity", "record"]
# Their options in a token, which may come from anybody: none of them names a file.
_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "simulate": frozenset({"--ranks", "--device", "--schedule"}),
    "parity": frozenset(
        {
            *("--layouts", "--steps", "--seed", "--micro-batches"),
            *("--size", "--rows", "--data"),
        }
    ),
    "record": frozenset({"--nproc", "--device", "-m"}),
}
_NEGATIVE: Final = re.compile(r"-\d+$")


@dataclass(frozen=True, slots=True)
class ProgramPlay:
    """A play of a program that showed something wrong."""

    property: str  # the violated one, or the wrong quantity
    cause: str
    face: Face  # command that plays it
    options: tuple[str, ...]  # words of that command before the name of the program
    arguments: tuple[str, ...] = ()  # words behind it: arguments of a script

    def words(self, program: str) -> list[str]:
        """Return the words of the command that plays a program in this way."""
        return [*self.options, "--", program, *self.arguments]

    def line(self, program: str) -> str:
        """Return the command as a user types it."""
        words = (*self.options, program, *self.arguments)
        return shlex.join(["syncverify", self.face, *words])

    def packed(self) -> list[Any]:
        """Return what a token holds."""
        face = {self.face: [list(self.options), list(self.arguments)]}
        return [self.property, self.cause, face]


def is_of_program(packed: list[Any]) -> bool:
    """Tell whether a token holds a program: a scenario is a list."""
    return len(packed) == 3 and isinstance(packed[2], dict)


def unpacked(packed: list[Any]) -> ProgramPlay:
    """Return the play that a token holds.

    Raises:
        ValueError: The token holds something else.
    """
    name, cause, faces = packed
    ((face, (options, arguments)),) = faces.items()
    if face not in _OPTIONS:
        raise ValueError(f"no command {face!r:.40} plays a program")
    check_names((name, cause, *options))
    if not all(isinstance(argument, str) for argument in arguments):
        raise ValueError("arguments of a script are texts")
    named = {word for word in options if word[:1] == "-" and not _NEGATIVE.match(word)}
    if not named <= _OPTIONS[face]:
        raise ValueError(f"it has {sorted(named - _OPTIONS[face])}")
    return ProgramPlay(name, cause, face, tuple(options), tuple(arguments))
