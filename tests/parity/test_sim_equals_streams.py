"""Simulated ranks that are processes say what simulated ranks that are threads say."""

from collections.abc import Iterator

import pytest
from hypothesis import given, seed, settings

from syncverify.judge.properties.registry import judge_run
from syncverify.playing.sim import SimBackend
from syncverify.playing.streams import StreamsBackend
from syncverify.scenario.features import without_clear_errors
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies import scenarios
from syncverify.subjects.bugbank.catalogue import entries
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.run import Run
from tests.parity.test_sim_equals_gloo import assert_equal
from tests.programs import identities
from tests.quality.planted import hashes


@pytest.fixture(scope="module")
def streams() -> Iterator[StreamsBackend]:
    opened = StreamsBackend()
    yield opened
    opened.close()


def verdict(run: Run, scenario: Scenario, subject: Subject) -> set[tuple[str, str]]:
    found = judge_run(scenario, run, subject.capabilities)
    return {(each.property, each.cause) for each in found.violations}


def compare(subject: Subject, num_scenarios: int, streams: StreamsBackend) -> int:
    """Play scenarios on both, and return the number of those with a violation."""
    # Where a feature may be refused, both may raise and leave off at different places.
    capabilities = without_clear_errors(subject.capabilities)
    num_wrong = 0

    @seed(20_261_127)
    @settings(max_examples=num_scenarios)
    @given(scenarios(max_ranks=4, capabilities=capabilities))
    def play(scenario: Scenario) -> None:
        nonlocal num_wrong
        threads = SimBackend().run(scenario, subject)
        processes = streams.run(scenario, subject)
        expected = verdict(threads, scenario, subject)
        assert verdict(processes, scenario, subject) == expected
        if threads.fault is None:
            assert_equal(threads, processes)
        num_wrong += bool(expected)

    play()
    return num_wrong


def test_the_order_of_a_set_of_strings_differs_between_processes(
    streams: StreamsBackend,
) -> None:
    """Ranks that are threads share the order, so the subject is right there."""
    weights = tuple(ParameterSpec(f"p{n}", (3,), ("R",)) for n in range(6))
    scenario = Scenario(MeshSpec((2,), ("dp",)), weights, (1,), 2**20)
    mismatch = ("collectives_match_across_ranks", "bucket_mismatch")
    assert mismatch in identities(hashes.ReducesBySet, scenario, streams)
    assert identities(hashes.ReducesBySet, scenario) == set()
    assert identities(hashes.ReducesByName, scenario, streams) == set()


def sampled(num_entries: int) -> list[Subject]:
    """Return entries of the bank at equal distances; those that use streams come last."""
    found = sorted(entries(), key=lambda entry: (entry.uses_streams, entry.name))
    return [found[at * len(found) // num_entries].defect() for at in range(num_entries)]


NIGHTLY = pytest.mark.nightly


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "num_scenarios"),
    [
        ("synchronizer", 10),
        pytest.param("synchronizer", 200, marks=NIGHTLY),
        pytest.param("ddp", 200, marks=NIGHTLY),
    ],
)
def test_right_subjects_have_the_verdict_of_sim(
    name: str, num_scenarios: int, streams: StreamsBackend
) -> None:
    assert compare(resolve(name), num_scenarios, streams) == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_defects", "num_scenarios"), [(5, 4), pytest.param(20, 10, marks=NIGHTLY)]
)
def test_defects_have_the_verdict_of_sim(
    num_defects: int, num_scenarios: int, streams: StreamsBackend
) -> None:
    defects = sampled(num_defects)
    assert sum(compare(each, num_scenarios, streams) for each in defects) > 0
