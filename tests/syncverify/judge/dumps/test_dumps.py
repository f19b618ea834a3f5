"""Dumps that are written, read and judged; torch's own analyzer reads the same ones."""

import gc
import json
import pickle
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.flight_recorder.components.builder import build_db
from torch.distributed.flight_recorder.components.loader import read_dir

from syncverify.errors import UsageError
from syncverify.judge.dumps.judging import JobVerdict, judge_dumps
from syncverify.judge.dumps.reading import read_dumps
from syncverify.judge.dumps.writing import dumps_of
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.source_lines import SourceLine
from tests.syncverify.judge.properties.handmade_traces import launch

BOTH, ALL = (0, 1), (0, 1, 2)
Dumps = dict[int, dict[str, Any]]


def reduction(
    sequence: int, ranks: tuple[int, ...] = BOTH, **more: Any
) -> CollectiveLaunch:
    line = SourceLine("train.py", sequence, "step")
    return launch("g", ranks, sequence, source=line, **more)


def written(folder: Path, dumps: Dumps) -> Path:
    for rank, values in dumps.items():
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(values, protocol=2))
    return folder


def verdict(folder: Path, dumps: Dumps) -> JobVerdict:
    return judge_dumps(read_dumps([written(folder, dumps)]))


def judged(folder: Path, *traces: Sequence[CollectiveLaunch]) -> JobVerdict:
    return verdict(folder, dumps_of(traces))


def causes(found: JobVerdict) -> list[str]:
    return [violation.cause for violation in found.violations]


def analyzed(folder: Path) -> list[Any]:
    """Return the collectives that torch's analyzer finds in a folder."""
    options = dict.fromkeys(("verbose", "just_print_entries", "allow_incomplete_ranks"))
    arguments = Namespace(
        trace_dir=str(folder), prefix="rank_", mismatch_cap=10, **options
    )
    try:
        details, version = read_dir(arguments)
    finally:
        gc.enable()  # torch's analyzer switches it off, for all tests that follow
    return build_db(details, arguments, version).collectives  # type: ignore[no-any-return]


def test_right_job_is_right_for_both(tmp_path: Path) -> None:
    operations = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier")
    own = [reduction(n, operation=name) for n, name in enumerate(operations)]
    found = judged(tmp_path, own, own)
    assert (found.violations, found.num_collectives, found.num_unfinished) == ((), 5, 0)
    collectives = analyzed(tmp_path)
    assert [each.collective_name for each in collectives] == [
        f"nccl:{name}" for name in operations
    ]
    assert all(each.pass_check for each in collectives)


def test_other_sizes_are_a_mismatch_for_both(tmp_path: Path) -> None:
    found = judged(tmp_path, [reduction(0)], [reduction(0, numel=5)])
    assert causes(found) == ["collective_mismatch"]
    assert (
        found.violations[0].summary == "ranks [0, 1] met in one collective and disagree"
    )
    lines = [each.words for each in found.violations[0].evidence.events]
    assert (
        "all_reduce of 4 x Float over ranks [0, 1], at train.py:0 in step" in lines[0]
    )
    assert not analyzed(tmp_path)[0].pass_check


def test_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    """The dump of a rank that hangs elsewhere has fewer entries, or none."""
    own = [reduction(0, ALL), reduction(1, ALL)]
    dumps = dumps_of([own, own, own[:1]])
    found = verdict(tmp_path, dumps)
    assert causes(found) == ["collective_missing"]
    assert found.violations[0].ranks == (2,)
    assert found.violations[0].summary.startswith("rank 2 never issues a collective of")
    dumps[2]["entries"] = []
    for values in dumps.values():
        for entry in values["entries"]:
            entry |= {"state": "started", "retired": False}
    assert causes(verdict(tmp_path, dumps)) == ["collective_missing"]


def test_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    own = [reduction(0, ALL), reduction(1, ALL)]
    dumps = dumps_of([own, own, own[:1]])
    del dumps[2]
    found = verdict(tmp_path, dumps)
    assert (causes(found), found.absent) == (["rank_left_no_dump"], (2,))
    assert "rank 0 waits in all_reduce" in found.violations[0].summary


def test_dump_that_is_older_accuses_nobody(tmp_path: Path) -> None:
    """The collective has ended on rank 0, so rank 1 has come, after its dump."""
    own = [reduction(0), reduction(1)]
    dumps = dumps_of([own, own])
    dumps[1]["entries"].pop()
    found = verdict(tmp_path, dumps)
    assert (found.violations, found.num_collectives) == ((), 1)


def test_unfinished_collective_of_all_ranks_is_counted(tmp_path: Path) -> None:
    dumps = dumps_of([[reduction(0)], [reduction(0)]])
    for values in dumps.values():
        values["entries"][0] |= {"state": "started", "retired": False}
    found = verdict(tmp_path, dumps)
    assert (found.violations, found.num_unfinished) == ((), 1)


def test_recorder_that_dropped_entries_is_judged_from_the_rest(tmp_path: Path) -> None:
    own = [reduction(n, numel=n + 1) for n in range(6)]
    dumps = dumps_of([own, own])
    dumps[1]["entries"] = dumps[1]["entries"][3:]
    found = verdict(tmp_path, dumps)
    assert (found.violations, found.num_collectives) == ((), 3)
    dumps[1]["entries"][1]["input_sizes"] = [[9]]
    assert causes(verdict(tmp_path, dumps)) == ["collective_mismatch"]


def test_group_that_a_recorder_dropped_is_left_out(tmp_path: Path) -> None:
    early = [launch("once", BOTH, 0)]
    dumps = dumps_of([[*early, reduction(0)], [*early, reduction(0)]])
    del dumps[1]["entries"][0]
    for values in dumps.values():
        for entry in values["entries"]:
            entry |= {"state": "started", "retired": False}
    assert verdict(tmp_path, dumps).violations == ()


def test_orders_of_two_groups_that_exclude_each_other_are_a_hazard(
    tmp_path: Path,
) -> None:
    one, other = launch("a", BOTH, 0), launch("b", BOTH, 0)
    found = judged(tmp_path, [one, other], [other, one])
    assert causes(found) == ["deadlock_hazard"]


def test_messages_are_matched_by_their_ends(tmp_path: Path) -> None:
    def message(operation: str, **more: Any) -> CollectiveLaunch:
        return launch("g", (2, 1), 0, operation=operation, reduce_op="", **more)

    # Two: the analyzer takes a message and a collective of one number for a coalesced group.
    group = [reduction(0, ALL), reduction(1, ALL)]
    traces = [group, [*group, message("recv")], [*group, message("send")]]
    assert judged(tmp_path, *traces).violations == ()
    assert all(each.pass_check for each in analyzed(tmp_path))
    traces[1] = [*group, message("recv", numel=3)]
    assert causes(judged(tmp_path, *traces)) == ["collective_mismatch"]


def gloo_entry(record: int, size: int, *, is_done: bool = True) -> dict[str, Any]:
    return {
        "record_id": record,
        "process_group": ["0", "default_pg"],
        "is_p2p": False,
        "collective_seq_id": record + 1,
        "p2p_seq_id": 0,
        "state": "scheduled",
        "profiling_name": "gloo:all_reduce",
        "retired": is_done,
        "input_sizes": [[2, size]],
        "input_dtypes": ["Float"],
    }


def gloo_verdict(folder: Path, *own: list[dict[str, Any]]) -> JobVerdict:
    """Judge the JSON that torch 2.13 writes of a gloo job, without the ranks of groups."""
    groups = {"": {"name": "", "desc": "", "ranks": "[]"}}
    for rank, entries in enumerate(own):
        values = {"entries": entries, "pg_config": groups}
        (folder / f"dump{rank}.json").write_text(json.dumps(values))
    return judge_dumps(read_dumps([folder]))


def test_sizes_of_a_gloo_job_are_compared(tmp_path: Path) -> None:
    found = gloo_verdict(tmp_path, [gloo_entry(0, 3)], [gloo_entry(0, 4)])
    assert causes(found) == ["collective_mismatch"]
    assert "6 x Float" in found.violations[0].evidence.events[0].words


class Hostile:
    """Calls a function of the system where it is unpickled."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.reduced = call, arguments

    def __reduce__(self) -> Any:
        return self.reduced


def right() -> dict[str, Any]:
    return dumps_of([[reduction(0)], [reduction(0)]])[0]


def changed(**fields: Any) -> bytes:
    values = right()
    values["entries"][0] |= fields
    return pickle.dumps(values)


# Each list holds the one before twice: a small file, and endless as a text.
ENDLESS: list[Any] = []
for _ in range(64):
    ENDLESS = [ENDLESS, ENDLESS]

FILES = {
    "empty": b"",
    "cut": pickle.dumps(right())[:-9],
    "calls": pickle.dumps(Hostile(Path.touch, Path("touched"))),
    "imports": b"cos\nsystem\n.",
    "takes all memory": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "group of a number": changed(process_group=(3,)),
    "endless dtype": changed(input_dtypes=[ENDLESS]),
    "number of a million digits": changed(record_id=10**1_000_000),
    "size of many dims": changed(input_sizes=[[2**62] * 100_000]),
    "no sequence": changed(collective_seq_id=None),
    "deep json": b'{"a":' + b"[" * 100_000,
    "ranks of code": pickle.dumps(
        {**right(), "pg_config": {"g": {"ranks": "__import__('os')"}}}
    ),
    "huge rank": pickle.dumps({**right(), "pg_config": {"g": {"ranks": "[99999999]"}}}),
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES.keys())
def test_hostile_file_is_refused_in_one_line(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "rank_0"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"no dump of the flight recorder: ") as caught:
        read_dumps([file])
    assert "\n" not in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == ["rank_0"]
