"""Answers of torchrun's processes are read as data: no code runs."""

import pickle
from pathlib import Path

import pytest
import torch

from syncverify.errors import InternalError
from syncverify.playing.messages import JobOutcome, pack, unpack_outcome, unpack_result
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from syncverify.trace.run import Fault

SHARDED = Scenario(
    MeshSpec((2, 2), ("dp", "tp")),
    (ParameterSpec("w", (4, 3), ("R", "S0"), "bfloat16", "float32"),),
    (2, 1),
    64,
    events=("plain", "rebind"),
    launch="parameter_streams",
)


class RunsCode:
    """A message that writes a file when `pickle` reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.slow
def test_outcome_of_a_run_is_read_as_it_was() -> None:
    result = SimBackend().run(SHARDED, resolve("synchronizer")).ranks[1]
    fault = Fault("raised", (1,), "rank 1 raised", ("a line",), identity="ValueError")
    sent = JobOutcome(pack(result), fault, is_aftershock=True)
    read = unpack_outcome(pack(sent))
    assert (read.fault, read.is_aftershock) == (fault, True)
    found = unpack_result(read.result)
    assert found.trace == result.trace
    assert found.leftovers == result.leftovers
    assert found.observations
    for ours, theirs in zip(found.observations, result.observations, strict=True):
        assert ours.point == theirs.point
        torch.testing.assert_close(dict(ours.gradients), dict(theirs.gradients))


@pytest.mark.parametrize("nested", [False, True])
def test_outcome_with_code_is_refused_and_the_code_does_not_run(
    tmp_path: Path, *, nested: bool
) -> None:
    foreign = RunsCode(tmp_path / "touched")
    packed = pack(foreign)  # type: ignore[arg-type]  # as an attacker does
    message = pack(JobOutcome(packed)) if nested else packed
    with pytest.raises(
        InternalError, match=r"^expected an outcome in torchrun's store"
    ):
        unpack_outcome(message)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("message", [b"junk", pickle.dumps([1])])
def test_other_bytes_are_no_outcome(message: bytes) -> None:
    with pytest.raises(InternalError, match=r"bytes that are none"):
        unpack_outcome(message)
