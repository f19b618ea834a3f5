"""Violations that one fix mends are reported once; those of another mistake stay."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.judge.properties import check
from syncverify.judge.violation import Violation
from syncverify.repair.fix_search import find_fix
from syncverify.repair.one_fix import diagnosed_by_fix
from syncverify.report.text import violation_text
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation, RelatedViolation
from syncverify.subjects.subject import Subject, resolve

BACKEND = SimBackend()


class TakesTheLastAxisFirst(PlainGrads):
    """Sums twice over the last axis of two, and not at all over the first one."""

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            gradient = parameter.grad
            if isinstance(gradient, DTensor):
                placements = enumerate(gradient.placements)
                axes = [axis for axis, each in placements if each.is_replicate()]
                mesh, local = gradient.device_mesh, gradient.to_local().detach()
                if axes:
                    dist.all_reduce(local, group=mesh.get_group(axes[-1]))
                for axis in axes[1:]:
                    dist.all_reduce(local, group=mesh.get_group(axis))


def program(shape: tuple[int, int], dtype: str = "float32") -> Scenario:
    placements = ("R", "R") if dtype == "float32" else ("S0", "S0")
    spec = ParameterSpec("p0", (4,), placements, dtype=dtype)
    return Scenario(MeshSpec(shape, ("dp", "tp")), (spec,), (1,), 1 << 20)


def entries(subject: Subject, *scenarios: Scenario) -> list[FoundViolation]:
    """Return the first violation of each scenario."""
    found = list[FoundViolation]()
    for each in scenarios:
        first, *_ = check(each, BACKEND.run(each, subject), subject.capabilities)
        found.append(FoundViolation(first, each))
    return found


def reported(subject: type, *scenarios: Scenario) -> list[FoundViolation]:
    resolved = resolve(subject)

    def diagnose(entry: FoundViolation) -> FoundViolation:
        return replace(entry, fix=find_fix(entry, resolved, BACKEND))

    found: Iterable[FoundViolation] = entries(resolved, *scenarios)
    return diagnosed_by_fix(found, diagnose, resolved, BACKEND)


@pytest.mark.long
def test_two_signs_of_one_mistake_are_one_violation() -> None:
    (entry,) = reported(TakesTheLastAxisFirst, program((2, 1)), program((1, 2)))
    assert entry.fix is not None
    assert len(entry.related) == 1
    assert entry.related[0].cause != entry.violation.cause


def test_a_violation_without_a_fix_mends_nothing() -> None:
    subject = resolve(TakesTheLastAxisFirst)
    found = entries(subject, program((2, 1)), program((1, 2)))
    assert diagnosed_by_fix(found, lambda each: each, subject, BACKEND) == found


def test_three_signs_are_printed_and_the_others_counted() -> None:
    violation = Violation("replicas_agree", "replicas_differ", "they differ")
    forms = [
        RelatedViolation("replicas_agree", f"form_{number}", "", is_consequence=False)
        for number in range(5)
    ]
    entry = FoundViolation(violation, program((1, 2)), related=tuple(forms))
    text = violation_text(entry, subject="a:B", backend="sim")
    assert text.count("also shows as: replicas_agree") == 3
    assert "  also shows as: ... and 2 more (--json PATH lists them)\n" in text
