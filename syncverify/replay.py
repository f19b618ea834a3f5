"""Tokens: one violation's scenario and schedule as a short string that survives a shell.

A token starts with its format's version. It holds the scenario, the schedule and the
identity of the violation, nothing about the subject or the backend, and is as short as
those allow. A checksum keeps a mistyped token from replaying another scenario.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncverify.errors import ScenarioFormatError
from syncverify.scenario import (
    DTYPES,
    PARAMETER_WORDS,
    SCENARIO_WORDS,
    MeshSpec,
    ParameterSpec,
    Scenario,
)
from syncverify.schedule import DEFAULT_SCHEDULE, Schedule

TOKEN_VERSION = 2
_PREFIX = f"sv{TOKEN_VERSION}-"
_OTHER_VERSION = re.compile(r"sv(\d+)-")
_MAX_JSON_BYTES = 2**20  # a token that unpacks to more is not ours


@dataclass(frozen=True, slots=True)
class Recording:
    """One violation, as it can be replayed.

    Attributes:
        property: Name of the violated property.
        cause: Short name of what went wrong.
        scenario: The smallest scenario that shows it.
        schedule: The choices that lead to it, where timing decides.
    """

    property: str
    cause: str
    scenario: Scenario
    schedule: Schedule = DEFAULT_SCHEDULE


def encode(recording: Recording) -> str:
    """Write a token."""
    packed = [
        recording.property,
        recording.cause,
        _pack(recording.scenario),
        recording.schedule.to_json(),
    ]
    text = json.dumps(packed, separators=(",", ":")).encode()
    squeezed = zlib.compress(text, level=9)
    return _PREFIX + base64.urlsafe_b64encode(squeezed).decode().rstrip("=")


def decode(token: str) -> Recording:
    """Read a token.

    Args:
        token: What `encode` wrote; surrounding white space does not matter.

    Returns:
        The recording.

    Raises:
        ScenarioFormatError: It is no token, or one of another version.
    """
    token = token.strip()
    version = _OTHER_VERSION.match(token)
    if version and not token.startswith(_PREFIX):
        raise ScenarioFormatError(
            f"token {_shortened(token)!r} is of version {version[1]}, and this syncverify "
            f"reads version {TOKEN_VERSION}: record the violation again, or replay it with "
            "the syncverify that wrote it"
        )
    if not token.startswith(_PREFIX):
        raise ScenarioFormatError(
            f"not a token or file: {_shortened(token)!r} (tokens of this version start with "
            f"{_PREFIX!r})"
        )
    body = token.removeprefix(_PREFIX)
    try:
        padded = body + "=" * (-len(body) % 4)
        squeezed = base64.b64decode(padded, altchars=b"-_", validate=True)
        return _unpack_recording(json.loads(_inflate(squeezed)))
    except (
        ValueError,
        TypeError,
        IndexError,
        KeyError,
        RecursionError,
        zlib.error,
        binascii.Error,
    ) as error:
        raise ScenarioFormatError(
            f"unreadable token {_shortened(token)!r}: {error}"
        ) from error


def _inflate(squeezed: bytes) -> bytes:
    inflate = zlib.decompressobj()
    text = inflate.decompress(squeezed, _MAX_JSON_BYTES)
    if not inflate.eof or inflate.unused_data:
        raise ValueError("it is cut short or continued")
    return text


def load(token_or_file: str) -> Recording:
    """Read a token, a file that holds one, or a JSON report.

    Args:
        token_or_file: A token; or a path, with `#N` for the N-th violation (from 0) of a
            report that has several.

    Returns:
        The recording.

    Raises:
        ScenarioFormatError: Nothing can be read there, or the choice is not clear.
    """
    name, hash_mark, index = token_or_file.partition("#")
    path = Path(name)
    if _OTHER_VERSION.match(token_or_file) or not _is_file(path):
        return decode(token_or_file)
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise ScenarioFormatError(f"cannot read {name!r}: {error.strerror}") from error
    if _OTHER_VERSION.match(text):
        return decode(text)
    return decode(_token_of_report(text, name, index if hash_mark else None))


def _token_of_report(text: str, name: str, index: str | None) -> str:
    try:
        data = json.loads(text)
        violations = data.get("violations", [data])
        tokens = [str(violation["token"]) for violation in violations]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ScenarioFormatError(
            f"{name!r} holds neither a token nor a report"
        ) from error
    if index is None and len(tokens) != 1:
        raise ScenarioFormatError(
            f"{name!r} has {len(tokens)} violations: choose one with {name}#0"
            + (f" to {name}#{len(tokens) - 1}" if tokens else ", if there were one")
        )
    if index is not None and not (index.isdecimal() and int(index) < len(tokens)):
        raise ScenarioFormatError(
            f"{name!r} has no violation #{index}: it has {len(tokens)}"
        )
    return tokens[int(index or 0)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # longer than a file name can be, or not one at all
        return False


def _shortened(text: str) -> str:
    limit = 40
    return text if len(text) <= limit else text[:limit] + "..."


def _pack(scenario: Scenario) -> list[Any]:
    listed = scenario.to_json()
    return [
        list(scenario.mesh.shape),
        list(scenario.mesh.axis_names),
        [
            _pack_parameter(spec, entry)
            for spec, entry in zip(
                scenario.parameters, listed["parameters"], strict=True
            )
        ],
        list(scenario.accumulations),
        scenario.bucket_cap_bytes,
        *_words(listed, SCENARIO_WORDS),
    ]


def _words(listed: dict[str, Any], names: tuple[str, ...]) -> list[dict[str, Any]]:
    words = {name: listed[name] for name in names if name in listed}
    return [words] if words else []


def _pack_parameter(spec: ParameterSpec, entry: dict[str, Any]) -> list[Any]:
    return [
        spec.name,
        list(spec.global_shape),
        None if spec.placements is None else list(spec.placements),
        DTYPES.index(spec.dtype),
        None if spec.grad_dtype is None else DTYPES.index(spec.grad_dtype),
        int(spec.requires_grad),
        spec.group,
        *_words(entry, PARAMETER_WORDS),
    ]


def _unpack_recording(packed: list[Any]) -> Recording:
    name, cause, scenario, schedule = packed
    if not (isinstance(name, str) and isinstance(cause, str)):
        raise ValueError("it names no property and cause")
    return Recording(name, cause, _unpack(scenario), Schedule.from_json(schedule))


def _unpack(packed: list[Any]) -> Scenario:
    shape, names, parameters, accumulations, cap, *rest = packed
    words = _known(rest, SCENARIO_WORDS)
    events = tuple(words.pop("events", ()))
    return Scenario(
        mesh=MeshSpec(tuple(shape), tuple(names)),
        parameters=tuple(_unpack_parameter(entry) for entry in parameters),
        accumulations=tuple(accumulations),
        bucket_cap_bytes=cap,
        events=events,
        **words,
    )


def _known(rest: list[Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Read the table at the end."""
    (words,) = rest or [{}]
    if not set(words) <= set(names):
        raise ValueError(f"it has {sorted(set(words) - set(names))}")
    return dict(words)


def _unpack_parameter(packed: list[Any]) -> ParameterSpec:
    name, shape, placements, dtype, grad_dtype, requires_grad, group, *rest = packed
    return ParameterSpec(
        name=name,
        global_shape=tuple(shape),
        placements=None if placements is None else tuple(placements),
        dtype=_dtype(dtype),
        grad_dtype=None if grad_dtype is None else _dtype(grad_dtype),
        requires_grad=bool(requires_grad),
        group=group,
        **_known(rest, PARAMETER_WORDS),
    )


def _dtype(number: int) -> str:
    if number not in range(len(DTYPES)):  # -1 would index as well
        raise ValueError(f"no dtype has number {number!r}")
    return DTYPES[number]
