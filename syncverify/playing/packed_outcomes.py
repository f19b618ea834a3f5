"""Outcomes and signs of life as bytes.

Note [Outcomes are data]
A worker of the `gloo` backend answers on a pipe that it inherits from its parent. The processes
of a torchrun job answer in torchrun's store, and every process that reaches the port of the
store may write to it. A pickle runs code when it is read, so these answers are read by torch's
unpickler for weights, which makes objects of listed classes alone.
"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Final, TypeVar

import torch

from syncverify.errors import InternalError
from syncverify.playing.messages import JobOutcome, SignOfLife, Status
from syncverify.processes.process_state import Work
from syncverify.trace import engine_log, records, regions, run, slots, source_lines
from syncverify.trace.run import RankRun

_Data = TypeVar("_Data")


def pack_result(result: RankRun) -> bytes:
    """Pickle the run of one rank, with tensors by value."""
    return _saved(result)


def unpack_result(packed: bytes) -> RankRun:
    """Unpickle the result of `pack_result`; it comes from our own worker."""
    result: RankRun = torch.load(io.BytesIO(packed), weights_only=False)
    return result


def _saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def pack_outcome(outcome: JobOutcome) -> bytes:
    """Pack an outcome for torchrun's store."""
    return _saved(outcome)


def pack_sign(sign: SignOfLife) -> bytes:
    """Pack a sign of life for torchrun's store."""
    return _saved(sign)


def unpack_sign(packed: bytes) -> SignOfLife:
    """Unpack a sign of life; see Note [Outcomes are data].

    Raises:
        InternalError: It is no sign of life.
    """
    return _read_as_data(packed, SignOfLife)


def unpack_outcome(packed: bytes) -> JobOutcome:
    """Unpack the result of `pack_outcome`; see Note [Outcomes are data].

    Raises:
        InternalError: It is no outcome.
    """
    outcome = _read_as_data(packed, JobOutcome)
    if not outcome.result:
        return outcome
    # Packed again, because `unpack_result` trusts its argument.
    return replace(outcome, result=pack_result(_read_as_data(outcome.result, RankRun)))


_DATA_CLASSES: Final = (
    JobOutcome,
    SignOfLife,
    Status,
    Work,
    bytes,  # an outcome without a result has empty ones
    frozenset,
    *(
        kind
        for module in (engine_log, records, regions, run, slots, source_lines)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    ),
)


def _read_as_data(packed: bytes, expected: type[_Data]) -> _Data:
    try:
        with torch.serialization.safe_globals(list(_DATA_CLASSES)):
            found = torch.load(io.BytesIO(packed), weights_only=True)
    except Exception as error:  # bytes that somebody made up may raise any
        raise InternalError(
            f"expected an outcome in torchrun's store, got {len(packed)} bytes that are none: "
            f"{type(error).__name__}"
        ) from error
    if not isinstance(found, expected):
        raise InternalError(
            f"expected a {expected.__name__} in torchrun's store, got a "
            f"{type(found).__name__}"
        )
    return found
