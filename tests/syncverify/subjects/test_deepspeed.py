"""DeepSpeed's ZeRO as a subject, where it is installed, and what its contract means."""

from dataclasses import replace

import pytest

from syncverify.backends.choice import open_backend
from syncverify.backends.gloo import GlooBackend
from syncverify.backends.sim import SimBackend
from syncverify.errors import UsageError
from syncverify.judge.properties import check
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.ddp import DistributedDataParallelSubject
from syncverify.subjects.subject import Subject, resolve

SEVERAL_DTYPES = Scenario(
    MeshSpec((2,), ("dp",)),
    (
        ParameterSpec("p0", (3, 2), ("R",)),
        ParameterSpec("p1", (3,), ("R",), dtype="bfloat16"),
    ),
    (2, 1),
    64,
)


@pytest.mark.parametrize("backend", ["sim", "fake"])
def test_state_of_a_process_needs_processes(backend: str) -> None:
    capabilities = Capabilities(needs_processes=True)
    subject = Subject("zero", DistributedDataParallelSubject, capabilities)
    with pytest.raises(UsageError, match="use --backend gloo"):
        open_backend(backend, subject)


class SyncsEachTime(DistributedDataParallelSubject):
    """Reduces in every micro-batch, onto sums that are reduced already."""

    def run_micro_batch(self, compute_loss, *, is_last: bool) -> None:  # type: ignore[no-untyped-def]
        super().run_micro_batch(compute_loss, is_last=True)


def test_only_declared_subjects_may_reduce_in_each_micro_batch() -> None:
    strict = SyncsEachTime.capabilities
    subject = Subject("each", SyncsEachTime, strict)
    run = SimBackend().run(SEVERAL_DTYPES, subject)
    declared = replace(strict, reduces_each_micro_batch=True)
    causes, excused = (
        {violation.cause for violation in check(SEVERAL_DTYPES, run, capabilities)}
        for capabilities in (strict, declared)
    )
    assert "reduced_early" in causes
    assert "reduced_early" not in excused


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepspeed-zero1", "deepspeed-zero2"])
def test_deepspeed_is_silent_on_processes(name: str) -> None:
    pytest.importorskip("deepspeed", reason="pip install deepspeed")
    subject, backend = resolve(name), GlooBackend(hang_timeout_seconds=60.0)
    try:
        run = backend.run(SEVERAL_DTYPES, subject)
    finally:
        backend.close()
    assert check(SEVERAL_DTYPES, run, subject.capabilities) == []
