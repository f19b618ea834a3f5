"""Scenarios that a user chose, with features that the contract of the subject may not name."""

from __future__ import annotations

from dataclasses import replace

from syncverify.errors import UsageError
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject


def observing(subject: Subject, scenario: Scenario) -> Subject:
    """Return the subject as one that may refuse each feature beyond its contract.

    Raises:
        UsageError: The contract leaves out a value of plain steps that the scenario has.
    """
    own = subject.capabilities
    newer = {*own.newer_features}
    beyond = {
        str(feature)
        for feature in features_outside(scenario, own)
        if feature in OPTIONAL or feature in newer
    }
    capabilities = replace(
        own, refused=own.refused | beyond, outside=own.outside - beyond
    )
    outside = [*map(str, features_outside(scenario, capabilities))]
    if outside:
        raise UsageError(
            f"subject {subject.name!r} does not promise to handle {', '.join(outside)}: its "
            "capabilities leave that out; replay with a subject that covers it"
        )
    return replace(subject, capabilities=capabilities)
