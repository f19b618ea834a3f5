"""The harness finds realistic defects, shrinks them, and names them."""

import math
import re
from dataclasses import replace

import pytest

from syncverify import verify
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entry_of
from syncverify.judge.evidence import Ended, WrongGradient
from syncverify.judge.properties import check
from syncverify.report.text import violation_text
from syncverify.scenario.features import optional_features
from syncverify.scenario.token import decode
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.subject import resolve
from syncverify.verification.verify import PropertyViolation
from tests.quality.planted.bank import DEFECTS, LIVE, MATCH, ORDER, WAITS, Defect
from tests.quality.planted.stream_bank import STREAM_DEFECTS

# Violations of these properties have no gradient to show.
ABOUT_LINES = {LIVE, WAITS, MATCH, ORDER}
# A search takes five seconds of CPU time. `make check` searches for one defect of six, the
# nightly profile for all. `make test` plays the smallest scenario of every defect of the bug
# bank, in a tenth of a second each.
# These two take as long as six others.
AT_NIGHT = {"ShardsWithoutPadding", "RebindsViewsToResult"}
IN_MAKE_CHECK = [each for each in DEFECTS[::6] if each.subject.__name__ not in AT_NIGHT]


def mark(defect: Defect) -> pytest.MarkDecorator:
    return pytest.mark.long if defect in IN_MAKE_CHECK else pytest.mark.nightly


every_defect = pytest.mark.parametrize(
    "defect",
    [
        pytest.param(
            defect,
            id=defect.subject.__name__,
            marks=mark(defect),
        )
        for defect in DEFECTS
    ],
)


@every_defect
def test_planted_defect_is_found_and_explained(defect: Defect) -> None:
    with pytest.raises(PropertyViolation) as caught:
        verify(
            defect.subject,
            backend="sim",
            ranks=4,
            examples=defect.examples,
            seed=defect.seed,
        )
    reported = caught.value.report.violations
    names = {each.violation.property for each in reported}
    names |= {one.property for each in reported for one in each.related}
    assert names == {defect.property, *defect.also}
    found = {each.violation.identity: each for each in reported}
    smallest = found[defect.property, defect.cause]
    assert_is_small(smallest, defect)
    assert_helps_a_tired_engineer(smallest, defect)
    assert violation_text(
        smallest, subject=caught.value.report.subject, backend="sim", title="VIOLATION"
    ).partition("\n")[2] in str(caught.value)
    assert_token_replays(smallest, defect)


def assert_is_small(smallest: FoundViolation, defect: Defect) -> None:
    scenario = smallest.scenario
    assert scenario.mesh.shape == defect.mesh
    assert len(scenario.parameters) <= defect.num_parameters
    assert len(scenario.accumulations) <= len(defect.accumulations)
    assert sum(scenario.accumulations) <= sum(defect.accumulations)
    assert set(map(str, optional_features(scenario))) == defect.features


def assert_helps_a_tired_engineer(smallest: FoundViolation, defect: Defect) -> None:
    text = violation_text(smallest, subject="Subject", backend="sim")
    assert text.startswith(f"VIOLATION: {defect.property} ({defect.cause})\n")
    assert smallest.violation.summary.startswith(sentence(smallest, defect))
    assert f"  {smallest.violation.summary}\n" in text
    assert re.search(r"^  seen on: +ranks? \d", text, re.MULTILINE)
    assert re.search(r"^  hint: +\S", text, re.MULTILINE)
    assert f"replay {smallest.token} Subject --backend sim" in text
    if isinstance(smallest.violation.evidence, WrongGradient):
        assert re.search(
            r"^  expected: +\[.+\]\n  observed: +\[.+\]$", text, re.MULTILINE
        )
    if smallest.violation.property in ABOUT_LINES:  # the subject's own line
        assert re.search(rf"(bases|{own_folder(defect)})/\w+\.py:\d+ in \w+", text)
    elif smallest.violation.parameters:
        assert "; parameter" in text


def sentence(smallest: FoundViolation, defect: Defect) -> str:
    if "{" not in defect.says:
        return defect.says
    (only,) = smallest.scenario.parameters
    # Which parameter is left, and its shape, depends on the drawing.
    return defect.says.format(name=only.name, numel=math.prod(only.global_shape))


def own_folder(defect: Defect) -> str:
    return str(defect.subject.__module__.split(".")[-2])


def assert_token_replays(smallest: FoundViolation, defect: Defect) -> None:
    reproducer = decode(smallest.token)
    assert (reproducer.property, reproducer.cause) == (defect.property, defect.cause)
    assert reproducer.scenario == smallest.scenario
    subject = resolve(defect.subject)
    run = SimBackend().run(reproducer.scenario, subject)
    first, *_ = check(reproducer.scenario, run, subject.capabilities)
    if isinstance(first.evidence, Ended):  # reports add the argument of an error
        named = replace(first.evidence, groups=subject.groups_argument)
        first = replace(first, evidence=named)
    assert first == smallest.violation


def test_bank_is_wide() -> None:
    """Each defect has a public report of its own."""
    named = [defect.entry_id for defect in (*DEFECTS, *STREAM_DEFECTS)]
    assert len({entry_of(each).source for each in named}) == len(named) >= 50
