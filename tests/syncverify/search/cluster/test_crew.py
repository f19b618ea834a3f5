"""A crew on a cluster makes each call, and loses none."""

import functools
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest

from syncverify.errors import InternalError, UsageError
from syncverify.processes.calls import tell_caller
from syncverify.search import shards
from syncverify.search.cluster import connection
from syncverify.search.cluster.connection import connected, difference, versions_here
from syncverify.search.cluster.crew import run_on_cluster
from tests.syncverify.search.test_campaign import facts, look

ALONE = "tcp://127.0.0.1:1"  # where nothing listens


def double(number: int) -> int:
    tell_caller(lambda: f"doubles {number}")
    return 2 * number


def dies_once(folder: Path) -> str:
    """Kill the process of the call, and then the worker; answer at last."""
    for name in ("process", "worker"):
        mark = folder / name
        if not mark.exists():
            mark.touch()
            os.kill(worker_of(os.getpid()) if name == "worker" else os.getpid(), 9)
            signal.pause()
    return "answer"


def worker_of(pid: int) -> int:
    """Return the process that has asked for the call, which a template has forked."""
    for _ in range(2):
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
    return pid


def dies_always(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def refuses(number: int) -> int:
    raise UsageError(f"expected 0, got {number}")


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """Yield the address of a scheduler with two workers."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        memory_limit=0,
        silence_logs=logging.CRITICAL,
    ) as cluster:
        yield cluster.scheduler_address


def results(function: Any, items: list[Any], place: str, **more: Any) -> list[Any]:
    return sorted(run_on_cluster(function, items, place=place, **more))


@pytest.mark.long
def test_each_item_comes_with_its_result(place: str) -> None:
    heard = list[object]()
    found = results(double, [*range(7)], place, hear=heard.append)
    assert found == [(number, 2 * number) for number in range(7)]
    assert sorted(map(str, heard)) == [f"doubles {number}" for number in range(7)]
    with pytest.raises(UsageError, match="expected 0, got 1"):
        results(refuses, [1], place)


@pytest.mark.long
def test_a_call_outlives_its_process_and_its_worker(place: str, tmp_path: Path) -> None:
    assert results(dies_once, [tmp_path], place) == [(tmp_path, "answer")]
    with pytest.raises(InternalError, match="ended by signal 9"):
        results(dies_always, [1], place)


@pytest.mark.long(40)
def test_a_search_on_workers_is_that_of_one_process(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_LEAST", 3)
    crew = functools.partial(run_on_cluster, place=place)
    there, here = look(tmp_path / "there", crew=crew), look(tmp_path / "here")
    assert facts(there) == facts(here)


@pytest.mark.long
def test_a_worker_imports_no_torch(place: str) -> None:
    """Its processes do, which a template forks; in the worker, it would take seconds."""
    assert results(double, [1], place) == [(1, 2)]
    with connected(place) as client:
        # A function of this module would import torch there.
        has_torch = client.run(eval, "'torch' in __import__('sys').modules")
    assert [*has_torch.values()] == [False, False]


@pytest.mark.long
def test_a_worker_of_other_versions_is_refused(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {**versions_here(), "torch": "1.0"}
    monkeypatch.setattr(connection, "versions_here", lambda: wanted)
    with pytest.raises(UsageError, match=r"^the worker tcp://.* \(expected 1\.0\)$"):
        results(double, [1], place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "message"),
    [
        (ALONE, r"^cannot reach a scheduler at 'tcp://127\.0\.0\.1:1': "),
        ("nowhere.json", "not 'nowhere.json': No such file or directory$"),
        ("pyproject.toml", "not 'pyproject.toml': it is no JSON$"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(
    place: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_REACH_SECONDS", 0.1)
    with pytest.raises(UsageError, match=message) as caught:
        results(double, [1], place)
    assert "\n" not in str(caught.value)


def test_differences_of_versions_are_named() -> None:
    wanted = {"python": "3.11.4", "torch": "2.13.0", "syncverify": "0.1.0"}
    found = {"python": "3.11.4", "torch": "2.14.1", "syncverify": ""}
    assert difference(wanted, found) == (
        "torch 2.14.1 (expected 2.13.0) and syncverify not at all (expected 0.1.0)"
    )
    assert difference(wanted, wanted) == ""


def test_the_log_of_dask_is_not_in_the_output() -> None:
    log = logging.getLogger("distributed.client")
    with connection._quiet():
        assert not log.isEnabledFor(logging.ERROR)
    assert log.isEnabledFor(logging.ERROR)
