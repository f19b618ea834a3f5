"""Each defect is found under the plain contract, or under the one that names its feature."""

from dataclasses import replace

import pytest

from studies.bank_rows import caught
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entries
from syncverify.bugbank.entry import Entry
from syncverify.judge.properties import check
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import optional_features
from syncverify.scenario.replay_token import decode
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing, EndedError
from syncverify.search.judge import Judge, JudgedRun
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.search import judge_each_scenario
from syncverify.settings import DEFAULT_BANK_EXAMPLES, DEFAULT_BANK_SEED, Settings
from syncverify.subjects.subject import Subject, resolve

CAUGHT = caught()
# All others are searched by `syncverify bank` under the plain contract itself.
WITH_FEATURES = [
    entry
    for entry in entries()
    if not entry.defect().capabilities.asks_plain_steps_alone
]


def features_of(entry: Entry) -> frozenset[str]:
    """Return the features of the smallest scenario that was found."""
    scenario = decode(CAUGHT[entry.name].token).scenario
    return frozenset(map(str, optional_features(scenario)))


def asked(entry: Entry) -> Capabilities:
    """Return the contract of plain steps and that feature, which has to be right."""
    return replace(entry.defect().capabilities.plain(), right=features_of(entry))


def with_usual_promise(contract: Capabilities) -> Capabilities:
    """Return a contract under which a feature may be refused if the table says so."""
    return replace(contract, right=(), features=contract.right)


def shown(entry: Entry, subject: Subject) -> set[tuple[str, str]]:
    """Replay the smallest scenario; return the property and cause of each violation."""
    reproducer = decode(CAUGHT[entry.name].token)
    run = SimBackend().run(reproducer.scenario, subject, reproducer.schedule)
    found = check(reproducer.scenario, run, subject.capabilities)
    return {violation.identity for violation in found}


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_one_feature_at_most_shows_the_defect(entry: Entry) -> None:
    caught = CAUGHT[entry.name]
    assert len(features_of(entry)) <= 1
    assert caught.contract == (", ".join(features_of(entry)) or "plain")


def is_declared(entry: Entry) -> bool:
    """Tell whether an entry and its twin declare that contract: `test_smallest.py` plays it."""
    contracts = asked(entry), with_usual_promise(asked(entry))
    return contracts == (entry.defect().capabilities, entry.fixed().capabilities)


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [entry for entry in entries() if not is_declared(entry)],
    ids=lambda entry: entry.name,
)
def test_contract_of_that_feature_judges_the_defect(entry: Entry) -> None:
    caught = CAUGHT[entry.name]
    defect = resolve(entry.subject, asked(entry))
    assert (caught.property, caught.cause) in shown(entry, defect)
    twin = resolve(entry.twin, with_usual_promise(asked(entry)))
    assert shown(entry, twin) == set()


@pytest.mark.nightly  # the quick test replays what these searches find
@pytest.mark.parametrize("entry", WITH_FEATURES, ids=lambda entry: entry.name)
def test_search_under_the_contract_of_that_feature_finds_the_defect(
    entry: Entry,
) -> None:
    subject = resolve(entry.subject, asked(entry))
    settings = Settings(examples=DEFAULT_BANK_EXAMPLES, seed=DEFAULT_BANK_SEED)
    drawing = Drawing.of(subject.capabilities, settings)
    judge = Judge(subject, SimBackend(), ScheduleChoice(), settings.random_seed)
    expected, found = CAUGHT[entry.name].property, set[tuple[str, str]]()

    def take(_: Scenario, judged: JudgedRun) -> None:
        found.update(judged.violations)
        if any(name == expected for name, _ in found):
            raise EndedError

    judge_each_scenario(drawing, judge, take)
    assert expected in {name for name, _ in found}
