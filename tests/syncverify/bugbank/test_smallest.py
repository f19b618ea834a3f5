"""Each defect still shows in the smallest scenario that was found, and its twin does not."""

import pytest

from studies.bank_rows import caught
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entries
from syncverify.bugbank.entry import Entry
from syncverify.judge.properties import check
from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.scenario.replay_token import Reproducer, decode
from syncverify.subjects.subject import Subject

CAUGHT = caught()
# Of a new entry, `tests/meta/test_catalogues.py` says that it has no figures.
PLAYED = [entry for entry in entries() if entry.name in CAUGHT]
# It takes two runs to see that a subject is not deterministic, and a token holds one.
IN_ONE_RUN = [
    entry
    for entry in PLAYED
    if CAUGHT[entry.name].property != subject_is_deterministic.__name__
]


def identities(reproducer: Reproducer, subject: Subject) -> set[tuple[str, str]]:
    run = SimBackend().run(reproducer.scenario, subject, reproducer.schedule)
    found = check(reproducer.scenario, run, subject.capabilities)
    return {violation.identity for violation in found}


@pytest.mark.slow
@pytest.mark.parametrize("entry", IN_ONE_RUN, ids=lambda entry: entry.name)
def test_the_defect_shows_and_its_twin_does_not(entry: Entry) -> None:
    reproducer = decode(CAUGHT[entry.name].token)
    shown = identities(reproducer, entry.defect())
    assert (reproducer.property, reproducer.cause) in shown
    assert identities(reproducer, entry.fixed()) == set()


def test_entries_name_the_property_that_is_reported_first() -> None:
    wrong = {
        entry.name: CAUGHT[entry.name].property
        for entry in PLAYED
        if CAUGHT[entry.name].cause == entry.causes[0]
        and CAUGHT[entry.name].property != entry.violates
    }
    assert wrong == {}
