"""The bank is complete, each defect shows in its smallest scenario, and its twin is right there."""

import inspect
import re
from dataclasses import replace

import pytest

from studies.bank_rows import BANK, BUDGET, caught
from syncverify.command.bank.play import BankPlayer
from syncverify.judge.properties import ALL_PROPERTIES, check
from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import optional_features
from syncverify.scenario.replay_token import decode
from syncverify.subjects.bugbank.catalogue import entries, entry_of
from syncverify.subjects.bugbank.entry import Entry
from syncverify.subjects.subject import Subject, resolve

CAUGHT = caught()
ROWS = {row.id: row for row in BANK.read()}
# Of a new entry, `tests/meta/test_catalogues.py` says that it has no figures.
# It takes two runs to see that a subject is not deterministic, and a token holds one.
IN_ONE_RUN = [
    entry
    for entry in entries()
    if entry.name in CAUGHT
    and CAUGHT[entry.name].property != subject_is_deterministic.__name__
]
every_entry = pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)


@every_entry
def test_entry_names_its_mechanism_its_report_and_its_twin(entry: Entry) -> None:
    assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", entry.source)
    assert entry.mechanism.endswith(".")
    assert entry.trigger
    assert entry.violates in {each.name for each in ALL_PROPERTIES}
    assert not issubclass(entry.twin, entry.subject)
    defect, fixed = entry.defect(), entry.fixed()
    assert fixed.factory is entry.twin
    assert fixed.capabilities == defect.capabilities
    code = "".join(map(inspect.getsource, entry.subject.__mro__[:-1]))
    assert entry.uses_streams == ("torch.cuda" in code)
    assert entry.runs_on("gloo") != entry.uses_streams


def features_of(entry: Entry) -> frozenset[str]:
    scenario = decode(CAUGHT[entry.name].token).scenario
    return frozenset(map(str, optional_features(scenario)))


@every_entry
def test_one_feature_at_most_shows_the_defect(entry: Entry) -> None:
    assert len(features_of(entry)) <= 1
    names = ", ".join(features_of(entry)) or "plain"
    assert CAUGHT[entry.name].contract == names


def shown(entry: Entry, subject: Subject) -> set[tuple[str, str]]:
    """Replay the smallest scenario; return the property and cause of each violation."""
    reproducer = decode(CAUGHT[entry.name].token)
    run = SimBackend().run(reproducer.scenario, subject, reproducer.schedule)
    found = check(reproducer.scenario, run, subject.capabilities)
    return {violation.identity for violation in found}


@pytest.mark.slow
@pytest.mark.parametrize("entry", IN_ONE_RUN, ids=lambda entry: entry.name)
def test_the_defect_shows_and_its_twin_does_not(entry: Entry) -> None:
    expected = CAUGHT[entry.name].property, CAUGHT[entry.name].cause
    assert expected in shown(entry, entry.defect())
    assert shown(entry, entry.fixed()) == set()


def asked(entry: Entry) -> Capabilities:
    """Return the contract of plain steps and the one feature, which has to be right."""
    return replace(entry.defect().capabilities.plain(), right=features_of(entry))


def with_usual_promise(contract: Capabilities) -> Capabilities:
    """Return a contract under which a feature may be refused if the table says so."""
    return replace(contract, right=(), features=contract.right)


def is_declared(entry: Entry) -> bool:
    """Tell whether an entry and its twin declare that contract, which a test above plays."""
    contracts = asked(entry), with_usual_promise(asked(entry))
    return contracts == (entry.defect().capabilities, entry.fixed().capabilities)


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [entry for entry in entries() if not is_declared(entry)],
    ids=lambda entry: entry.name,
)
def test_contract_of_that_feature_judges_the_defect(entry: Entry) -> None:
    expected = CAUGHT[entry.name].property, CAUGHT[entry.name].cause
    assert expected in shown(entry, resolve(entry.subject, asked(entry)))
    twin = resolve(entry.twin, with_usual_promise(asked(entry)))
    assert shown(entry, twin) == set()


def test_entries_name_the_property_and_the_cause_that_are_reported_first() -> None:
    assert len(IN_ONE_RUN) > 80
    for entry in IN_ONE_RUN:
        row, found = ROWS[entry.name], CAUGHT[entry.name]
        assert row.is_cause_right == (row.cause in entry.causes)
        if found.cause == entry.causes[0]:
            assert found.property == entry.violates, entry.name


# The first entry is played in each run of the tests: it takes several scenarios, so that another
# sequence mostly meets it elsewhere.
@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "flag-toggled-only-in-cooldown",
        *(pytest.param(e.name, marks=pytest.mark.nightly) for e in entries()),
    ],
)
def test_a_search_meets_what_is_stored(name: str) -> None:
    budget, stored = replace(BUDGET, twin_examples=0), ROWS[name]
    row = BankPlayer(SimBackend(), budget).play(entry_of(name))
    measured = (row.caught.property, row.caught.cause, row.examples)
    assert measured == (stored.property, stored.cause, stored.examples), (
        "the figures are older than the searches: delete their rows, then `make catalogue`"
    )
