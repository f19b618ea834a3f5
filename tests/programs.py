"""Programs that many tests play: parameters, what is added to them, and the verdict on a run."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate

from syncverify import verify
from syncverify.command.verification.verify import PropertyViolation
from syncverify.judge.properties import check
from syncverify.judge.violation import Violation
from syncverify.playing.program.modules import layers
from syncverify.playing.sim import SimBackend
from syncverify.report.report import Report
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import Subject, resolve


def forget_layers() -> None:
    """Forget all layers, as in a process that has read no contract with layers."""
    for word in [*layers.PATHS]:
        layers._forget(word)


def parameter(
    mesh: DeviceMesh,
    *placements: Placement,
    numel: int = 3,
    dtype: torch.dtype = torch.float32,
) -> nn.Parameter:
    """Make a parameter of so many local zeros, replicated where no placement is given."""
    return placed(torch.zeros(numel, dtype=dtype), mesh, *placements)


def placed(
    values: torch.Tensor, mesh: DeviceMesh, *placements: Placement
) -> nn.Parameter:
    """Make a parameter of local values, replicated where no placement is given."""
    chosen = placements or [Replicate()]
    return nn.Parameter(DTensor.from_local(values, mesh, chosen, run_check=False))


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a DTensor; any other tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def accumulate(parameter: nn.Parameter, value: float | torch.Tensor = 1.0) -> None:
    """Add a value to each local element of the gradient."""
    (local(parameter) * value).sum().backward()


def value(parameter: nn.Parameter) -> float | None:
    """Return the value that all local elements of the gradient have."""
    if parameter.grad is None:
        return None
    (found,) = local(parameter.grad).unique().tolist()
    return found


def lines(caught: pytest.ExceptionInfo[BaseException]) -> list[str]:
    """Return the lines of an error's message."""
    return str(caught.value).splitlines()


def violations(
    subject: Any, scenario: Scenario, backend: Any = None
) -> list[Violation]:
    """Play a scenario, simulated if no backend is given, and judge it."""
    found = subject if isinstance(subject, Subject) else resolve(subject)
    run = (backend or SimBackend()).run(scenario, found)
    return check(scenario, run, found.capabilities)


def identities(
    subject: Any, scenario: Scenario, backend: Any = None
) -> set[tuple[str, str]]:
    """Play a scenario and judge it; return property and cause of each violation."""
    return {each.identity for each in violations(subject, scenario, backend)}


def one_parameter(
    num_ranks: int,
    name: str = "p0",
    shape: tuple[int, ...] = (3,),
    cap_bytes: int = 2**20,
) -> Scenario:
    """Return a scenario of one replicated parameter, and one step of one micro-batch."""
    spec = ParameterSpec(name, shape, ("R",))
    return Scenario(MeshSpec((num_ranks,), ("dp",)), (spec,), (1,), cap_bytes)


def report_on(subject: Any, **options: Any) -> Report:
    """Verify a subject on seed 0, and return the report, whatever it says."""
    try:
        return verify(subject, seed=0, **options)
    except PropertyViolation as violation:
        return violation.report
