"""A number of micro-batches that stays is sometimes announced again, and sometimes not.

`self.required += count` in the place of `=` was right in every program while the number came
before each step: a counter that is never set back grows by as much.
"""

from dataclasses import replace

import pytest
from typing_extensions import override

from syncverify.judge.properties import check
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets
from syncverify.subjects.subject import Subject

PAIR = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("w", (3,), ("R",)),), (1,), 1 << 20
)


class Notes(ViewBuckets):
    """Writes down the numbers that are announced."""

    noted: list[int] = []  # noqa: RUF012  # of all instances of a test

    @override
    def set_required_accumulations(self, require_accumulations: int) -> None:
        self.noted.append(require_accumulations)
        super().set_required_accumulations(require_accumulations)


class Adds(ViewBuckets):
    """Adds the number, and clears its counters."""

    @override
    def set_required_accumulations(self, require_accumulations: int) -> None:
        self.required += require_accumulations


class AddsForEver(Adds):
    """Adds the number, and never clears a counter."""

    @override
    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.buffer.zero_()


def causes(factory: type[ViewBuckets], *counts: int) -> set[str]:
    subject = Subject(
        factory.__name__, factory, Capabilities(varying_accumulations=True)
    )
    scenario = replace(PAIR, accumulations=counts)
    run = SimBackend().run(scenario, subject)
    return {each.cause for each in check(scenario, run, subject.capabilities)}


@pytest.mark.parametrize(
    ("counts", "noted"),
    [
        ((1, 1), []),
        ((1, 1, 1), [1]),
        ((1, 2), [2]),
        ((1, 2, 2, 2), [2, 2]),
        ((2, 1, 1, 3), [1, 1, 3]),
    ],
)
def test_a_number_that_stays_is_announced_before_every_other_step(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...], noted: list[int]
) -> None:
    monkeypatch.setattr(Notes, "noted", [])
    assert not causes(Notes, *counts)
    assert sorted(Notes.noted) == sorted(2 * noted)  # of two ranks


def test_a_number_that_is_added_shows_where_it_stays() -> None:
    assert not causes(AddsForEver, 1, 2)
    assert causes(AddsForEver, 1, 1)
    assert causes(Adds, 1, 1, 1)
    assert causes(Adds, 1, 2)
    assert not causes(ViewBuckets, 1, 1, 1)
