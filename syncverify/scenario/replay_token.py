"""Tokens: the play that showed one violation, as a string that survives a shell.

A token starts with its format's version. It holds the identity of the violation, with a scenario
and its schedule or with a play of a program, and nothing about the subject or the backend. Rare
fields at their defaults are left out to keep it short. A checksum keeps a mistyped token from
replaying another scenario.
"""

import base64
import json
import re
import shlex
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from syncverify.errors import ScenarioFormatError
from syncverify.scenario import bounds
from syncverify.scenario.scenario import (
    MESH_WORDS,
    PARAMETER_WORDS,
    SCENARIO_WORDS,
    Scenario,
    scenario_of,
)
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule
from syncverify.scenario.specs import DTYPES
from syncverify.scenario.validation import check_names

TOKEN_VERSION = 2
_PREFIX = f"sv{TOKEN_VERSION}-"
_Play = TypeVar("_Play")
_ANY_VERSION = re.compile(r"sv(\d{1,9})-")
# A token lists these fields in this order, and then a dict of rare ones, if there are some.
_OF_SCENARIO = (
    "shape",
    "axis_names",
    "parameters",
    "accumulations",
    "bucket_cap_bytes",
)
_OF_PARAMETER = (
    *("name", "global_shape", "placements", "dtype", "grad_dtype"),
    *("requires_grad", "group"),
)


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
class Reproducer:
    """One violation in a form that can be replayed: a scenario, a schedule and a name."""

    property: str
    cause: str
    scenario: Scenario  # the smallest one that shows the violation
    schedule: Schedule = DEFAULT_SCHEDULE  # that leads to it, where timing decides

    def packed(self) -> list[Any]:
        """Return what a token holds."""
        schedule = self.schedule.to_json()
        return [self.property, self.cause, _pack(self.scenario), schedule]


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


def encode(play: Reproducer | ProgramPlay) -> str:
    """Write a token."""
    return _token(play.packed())


def renamed(token: str, name: str, cause: str) -> str:
    """Return a token of the same scenario for another violation.

    The scenario is not unpacked: it may train a layer that this process does not know.
    """
    return _token([name, cause, *_packed(token)[2:]])


def _token(packed: list[Any]) -> str:
    text = json.dumps(packed, separators=(",", ":")).encode()
    squeezed = zlib.compress(text, level=9)
    return _PREFIX + base64.urlsafe_b64encode(squeezed).decode().rstrip("=")


def decode(token: str) -> Reproducer:
    """Return the reproducer of a token; another text is a `ScenarioFormatError`."""
    return _read(token, _unpack_reproducer)


def _read(token: str, unpack: Callable[[list[Any]], _Play]) -> _Play:
    token = token.strip()
    version = other_version(token)
    if version is not None:
        raise ScenarioFormatError(
            f"token {_shortened(token)!r} is of version {version}, and this syncverify "
            f"reads version {TOKEN_VERSION}: record the violation again, or replay it with "
            "the syncverify that wrote it"
        )
    if not token.startswith(_PREFIX):
        raise ScenarioFormatError(
            f"not a token or file: {_shortened(token)!r} (tokens of this version start with "
            f"{_PREFIX!r})"
        )
    try:
        return unpack(_packed(token))
    except (ValueError, TypeError, LookupError, RecursionError, zlib.error) as error:
        raise ScenarioFormatError(
            f"unreadable token {_shortened(token)!r}: {error}"
        ) from error


def _packed(token: str) -> list[Any]:
    body = token.removeprefix(_PREFIX)
    padded = body + "=" * (-len(body) % 4)
    squeezed = base64.b64decode(padded, altchars=b"-_", validate=True)
    inflate = zlib.decompressobj()
    text = inflate.decompress(squeezed, bounds.MAX_TOKEN_BYTES)
    if not inflate.eof or inflate.unused_data:
        raise ValueError("it is cut short or continued")
    packed: list[Any] = json.loads(text)
    return packed


def other_version(token: str) -> str | None:
    """Return the version of a token that this syncverify does not read; None for others."""
    version = _ANY_VERSION.match(token)
    return version[1] if version and not token.startswith(_PREFIX) else None


def load(token_or_file: str) -> Reproducer:
    """Return the reproducer of a token, of a file that holds one, or of a JSON report.

    A path may end in `#N`, for violation N (from 1) of a report that has several.

    Raises:
        ScenarioFormatError: The file cannot be read, or has no violation or several; or the
            token is refused.
    """
    return decode(_token_in(token_or_file))


def load_program(token_or_file: str) -> ProgramPlay | None:
    """Return how a token plays a program; None for a scenario, which is not unpacked."""
    return _read(
        _token_in(token_or_file),
        lambda packed: _unpack_program(packed) if _is_of_program(packed) else None,
    )


def _token_in(token_or_file: str) -> str:
    text = file_text(token_or_file)
    if text is None:
        return token_or_file
    if _ANY_VERSION.match(text):
        return text
    return _token_of_report(text, *_without_index(token_or_file))


def _without_index(path: str) -> tuple[str, str | None]:
    """Return the name of a file, and N of `#N` behind it; None if the path ends without one."""
    name, hash_mark, index = path.rpartition("#")
    return (name, index) if hash_mark and not _is_file(Path(path)) else (path, None)


def file_text(token_or_file: str) -> str | None:
    """Return the text of a file, also of `PATH#N`, or None; it may be a `ScenarioFormatError`."""
    name, _ = _without_index(token_or_file)
    path = Path(name)
    if _ANY_VERSION.match(token_or_file) or not _is_file(path):
        return None
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(bounds.MAX_FILE_BYTES + 1).strip()
    except OSError as error:
        raise ScenarioFormatError(f"cannot read {name!r}: {error.strerror}") from error
    if len(text) > bounds.MAX_FILE_BYTES:
        raise ScenarioFormatError(
            f"cannot read {name!r}: it has more than {bounds.MAX_FILE_BYTES} characters"
        )
    return text


def _token_of_report(text: str, name: str, index: str | None) -> str:
    try:
        data = json.loads(text)
        violations = data.get("violations", [data])
        tokens = [str(violation["token"]) for violation in violations]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ScenarioFormatError(
            f"{name!r} holds neither a token nor a report"
        ) from error
    if not tokens:
        raise ScenarioFormatError(f"{name!r} has no violation to play")
    if index is None and len(tokens) > 1:
        raise ScenarioFormatError(
            f"{name!r} has {len(tokens)} violations: choose one with {name}#1 "
            f"to {name}#{len(tokens)}"
        )
    if index is not None and not (index.isdecimal() and 1 <= int(index) <= len(tokens)):
        raise ScenarioFormatError(
            f"{name!r} has no violation #{index}: it has {len(tokens)}"
        )
    return tokens[int(index or 1) - 1]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a file name, or with a null byte
        return False


def _shortened(text: str) -> str:
    limit = 40
    return text if len(text) <= limit else text[:limit] + "..."


def _pack(scenario: Scenario) -> list[Any]:
    listed = scenario.to_json()
    del listed["version"]
    for entry in listed["parameters"]:
        for name in ("dtype", "grad_dtype"):
            if entry[name] is not None:
                entry[name] = DTYPES.index(entry[name])
        entry["requires_grad"] = int(entry["requires_grad"])
    listed["parameters"] = [_at_places(e, _OF_PARAMETER) for e in listed["parameters"]]
    return _at_places({**listed.pop("mesh"), **listed}, _OF_SCENARIO)


def _at_places(entry: dict[str, Any], places: tuple[str, ...]) -> list[Any]:
    listed = [entry.pop(name) for name in places]
    return [*listed, entry] if entry else listed


def _unpack_reproducer(packed: list[Any]) -> Reproducer:
    if _is_of_program(packed):
        line = _unpack_program(packed).line("PROGRAM")
        raise ScenarioFormatError(
            "expected the token of a scenario, and this one plays a program: "
            f"`syncverify replay TOKEN PROGRAM` plays it, as `{line}` does"
        )
    name, cause, scenario, schedule = packed
    check_names((name, cause))
    return Reproducer(name, cause, _unpack(scenario), Schedule.from_json(schedule))


def _unpack(packed: list[Any]) -> Scenario:
    listed = _by_name(packed, _OF_SCENARIO, (*MESH_WORDS, *SCENARIO_WORDS))
    listed["mesh"] = listed
    listed["parameters"] = [*map(_unpack_parameter, listed["parameters"])]
    return scenario_of(listed)


def _by_name(
    packed: list[Any], places: tuple[str, ...], rare: tuple[str, ...]
) -> dict[str, Any]:
    """Return the fields of a packed list; it has the rare ones at its end if at all."""
    (words,) = packed[len(places) :] or [{}]
    if not set(words) <= set(rare):
        raise ValueError(f"it has {sorted(set(words) - set(rare))}")
    return {**dict(zip(places, packed[: len(places)], strict=True)), **words}


def _unpack_parameter(packed: list[Any]) -> dict[str, Any]:
    entry = _by_name(packed, _OF_PARAMETER, PARAMETER_WORDS)
    grad_dtype = entry["grad_dtype"]
    return entry | {
        "dtype": _dtype(entry["dtype"]),
        "grad_dtype": None if grad_dtype is None else _dtype(grad_dtype),
        "requires_grad": bool(entry["requires_grad"]),
    }


def _dtype(number: int) -> str:
    if number not in range(len(DTYPES)):  # -1 would index as well
        raise ValueError(f"no dtype has number {number!r}")
    return DTYPES[number]


def _is_of_program(packed: list[Any]) -> bool:
    """Tell whether a token holds a program: a scenario is a list."""
    return len(packed) == 3 and isinstance(packed[2], dict)


def _unpack_program(packed: list[Any]) -> ProgramPlay:
    """Return the play that a token holds; other contents are a `ValueError`."""
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
