"""Dumps of a run, one a rank, as torch's flight recorder writes them.

Source: `torch/distributed/flight_recorder`, which analyzes such dumps, version 2.10.
"""

import itertools
from collections.abc import Iterator
from typing import Any, Final

from syncverify.judge.traced import launches_of
from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Trace, Traces
from syncverify.trace.source_lines import lines_among
from syncverify.trace.timeline.timeline import Ticks, ticks_of

VERSION: Final = "2.10"
# Names of dtypes in dumps, where they are not the capitalized ones of torch.
DTYPES: Final = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
}
_GATHERING: Final = frozenset({"all_gather", "all_gather_single", "gather"})
_SCATTERING: Final = frozenset({"reduce_scatter", "reduce_scatter_single", "scatter"})

JsonObject = dict[str, Any]


def dumps_of(traces: Traces) -> dict[int, JsonObject]:
    """Return the dump of each rank that plays, by its global rank."""
    ticks, members = ticks_of(traces), _members(traces)
    return {
        rank: {
            "version": VERSION,
            "pg_config": {
                name: {"name": name, "desc": "undefined", "ranks": str([*ranks])}
                for name, ranks in members.items()
                if rank in ranks
            },
            "pg_status": {},
            "comm_lib_version": "",
            "entries": [*_entries(rank, trace, ticks, members)],
        }
        for rank, trace in enumerate(traces)
        if trace
    }


def _members(traces: Traces) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each communicator, in group order; messages name two of them."""
    found: dict[str, tuple[int, ...]] = {}
    for launch in launches_of(itertools.chain(*traces)):
        known = found.get(launch.communicator, ())
        if launch.operation not in POINT_TO_POINT:
            found[launch.communicator] = launch.ranks
        elif not {*launch.ranks} <= {*known}:
            both = {*known, *launch.ranks}
            found[launch.communicator] = tuple(sorted(both))
    return found


def _entries(
    rank: int, trace: Trace, ticks: Ticks, members: dict[str, tuple[int, ...]]
) -> Iterator[JsonObject]:
    records = zip(ticks.of_records[rank], trace, strict=True)
    launches = [(at, e) for at, e in records if isinstance(e, CollectiveLaunch)]
    num_messages = 0
    for number, (tick, launch) in enumerate(launches):
        ranks = members[launch.communicator]
        is_message = launch.operation in POINT_TO_POINT
        num_messages += is_message
        is_complete = launch.key in ticks.ends
        output = launch.numel
        if launch.operation in _GATHERING:
            output *= len(launch.ranks)
        elif launch.operation in _SCATTERING:
            output //= len(launch.ranks)
        dtypes = [DTYPES.get(launch.dtype, launch.dtype.capitalize())]
        yield {
            "frames": [
                {"name": line.function, "filename": line.path, "line": line.number}
                for line in lines_among([launch.source])
            ],
            "record_id": number,
            "pg_id": list(members).index(launch.communicator),
            "process_group": (launch.communicator, "undefined"),
            "collective_seq_id": 0 if is_message else launch.sequence + 1,
            "p2p_seq_id": num_messages,
            "op_id": number + 1,
            "profiling_name": f"nccl:{_name(launch, ranks)}",
            "time_created_ns": tick * 1000,
            "input_sizes": [[launch.numel]],
            "input_dtypes": dtypes,
            "output_sizes": [[output]],
            "output_dtypes": dtypes,
            "state": "completed" if is_complete else "started",
            "time_discovered_started_ns": tick * 1000,
            "time_discovered_completed_ns": (
                ticks.ends[launch.key] * 1000 if is_complete else None
            ),
            "retired": is_complete,
            "timeout_ms": 600_000,
            "is_p2p": is_message,
        }


def _name(launch: CollectiveLaunch, ranks: tuple[int, ...]) -> str:
    """Return the operation; of a message with its two ends, as positions in the group."""
    if launch.operation not in POINT_TO_POINT:
        return launch.operation
    source, target = (ranks.index(rank) for rank in launch.ranks)
    if launch.operation == "send":
        return f"send {source}->{target}"
    return f"recv {target}<-{source}"
