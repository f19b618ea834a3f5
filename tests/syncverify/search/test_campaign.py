"""A search in shards gives one report, also after interrupts, and loses nothing."""

import errno
import pickle
import random
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syncverify.errors import UsageError
from syncverify.playing.choice import open_backend
from syncverify.processes.calls import Crew, run_here
from syncverify.scenario.settings import Settings
from syncverify.search import campaign_file, shards
from syncverify.search.campaign_file import CampaignFile
from syncverify.search.result import SearchResult
from syncverify.search.search import search
from syncverify.search.sharded_search import campaign_of
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_searches import Interrupting
from tests.syncverify.search.search_subjects import Doubles

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hardly_shrunk")]


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_LEAST", 3)


def settings_in(folder: Path) -> Settings:
    return Settings(ranks=2, examples=10, cluster="local", database=folder)


def look(
    folder: Path,
    progress: Interrupting | None = None,
    crew: Crew = run_here,
    subject: Any = Doubles,
) -> SearchResult:
    found, settings = resolve(subject), settings_in(folder)
    heard = progress or Interrupting(-1)
    with (
        closing(open_backend("sim", found)) as backend,
        campaign_of(found, settings, frozenset) as campaign,
    ):
        result = search(
            *(found, backend, settings, heard), crew=crew, campaign=campaign
        )
    return replace(result, seconds=0, campaign=None)


def begins_at(folder: Path) -> int:
    """Return the number of the scenario with which a search begins, and end it there."""
    progress = Interrupting(0)
    with pytest.raises(KeyboardInterrupt):
        look(folder, progress)
    return progress.num_played[0]


def facts(result: SearchResult) -> tuple[object, ...]:
    found = [(each, each.violation.evidence) for each in result.violations]
    counts = result.coverage.table(), result.coverage.pair_counts()
    # `Interrupting` stands beside the subject; where both run, its lines are counted too.
    statistics = replace(result.statistics, lines={})
    return (result.num_examples, found, result.met, statistics, *counts)


def in_any_order(
    function: Callable[[Any], Any],
    items: Iterable[Any],
    *,
    hear: Callable[[Any], object],
    stops: Callable[[], bool],
) -> Generator[tuple[Any, Any]]:
    """Make calls as workers do: the results come in any order."""
    results = [*run_here(function, items, hear=hear, stops=stops)]
    random.Random(0).shuffle(results)
    yield from results


@pytest.mark.long
def test_interrupts_and_the_order_of_workers_change_nothing(tmp_path: Path) -> None:
    whole = look(tmp_path / "whole")
    assert whole.num_examples == 10
    assert whole.violations
    for last in (2, 7):
        with pytest.raises(KeyboardInterrupt):
            look(tmp_path / "cut", Interrupting(last))
    later = Interrupting(-1)
    assert facts(look(tmp_path / "cut", later, in_any_order)) == facts(whole)
    assert later.num_played[0] == 7  # two shards of three were whole


@pytest.mark.slow
def test_a_file_holds_plain_values_alone(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        look(tmp_path, Interrupting(4))
    file = CampaignFile.of(resolve(Doubles), settings_in(tmp_path))
    done = file.read()
    assert done.num_merged == 1
    content = file.path.read_bytes()
    file.path.write_bytes(content[:-1])
    with pytest.raises(UsageError, match="its end is missing; delete it"):
        look(tmp_path)
    evil = pickle.dumps(print)
    file.path.write_bytes(file._header(evil) + b"\n" + evil)
    with pytest.raises(
        UsageError, match=r"the file names builtins\.print, which is no"
    ):
        look(tmp_path)
    file.path.write_bytes(b"syncverify 2 of-others x\n")  # such as of another torch
    assert begins_at(tmp_path) == 1


def test_two_commands_do_not_play_one_search(tmp_path: Path) -> None:
    with (
        campaign_of(resolve(Doubles), settings_in(tmp_path), frozenset),
        pytest.raises(UsageError, match="another command plays this search"),
    ):
        look(tmp_path)


@pytest.mark.long
def test_a_full_disk_is_one_line_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        look(tmp_path, Interrupting(4))

    def is_full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(campaign_file, "replace_file", is_full)
        with pytest.raises(
            UsageError, match="No space left on device; with room there"
        ):
            look(tmp_path)
    assert begins_at(tmp_path) == 4
