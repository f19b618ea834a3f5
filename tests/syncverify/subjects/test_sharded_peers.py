"""fairscale, Megatron-FSDP and Megatron as its training loop wraps it, where they are installed."""

import sys
from dataclasses import replace
from importlib.metadata import version

import pytest
from packaging.version import Version

from syncverify import PropertyViolation, verify
from syncverify.errors import SubjectError, UsageError
from syncverify.judge.properties import check
from syncverify.playing.choice import open_backend
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.built_in import missing_package, packages_of_peers
from syncverify.subjects.ddp import DistributedDataParallelSubject
from syncverify.subjects.subject import Subject, resolve
from tests.programs import one_parameter, violations

pytestmark = pytest.mark.filterwarnings("ignore")  # the packages warn on import


@pytest.mark.parametrize(
    ("name", "module", "command"),
    [
        ("fairscale", "fairscale.nn.data_parallel", "--no-deps fairscale`"),
        ("megatron-fsdp", "megatron_fsdp", "--no-deps megatron-fsdp`"),
        ("megatron-training", "megatron.core.distributed", "--no-deps megatron-core`"),
        ("megatron", "megatron.core.distributed", "--no-deps megatron-core`"),
        ("d9d", "d9d.internals.grad_sync", "--no-deps d9d"),
        ("deepspeed-zero1", "deepspeed", "deepspeed"),
    ],
)
def test_a_package_that_is_missing_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, command: str
) -> None:
    for part in (module, module.partition(".")[0]):
        monkeypatch.setitem(sys.modules, part, None)
    for adapter in (
        "d9d", "deepspeed", "fairscale", "megatron", "megatron_fsdp", "megatron_training"
    ):  # fmt: skip
        monkeypatch.delitem(
            sys.modules, f"syncverify.subjects.{adapter}", raising=False
        )
    with pytest.raises(SubjectError, match=f"pip install {command}") as message:
        resolve(name)
    assert "\n" not in str(message.value)


def test_a_part_that_a_package_needs_is_named() -> None:
    """A release may need more than the one before it: megatron-core 0.19 imports triton."""
    lost = ModuleNotFoundError(
        "No module named 'triton.language'", name="triton.language"
    )
    assert str(missing_package("megatron-core", lost)) == (
        "megatron-core cannot be imported, since it needs triton, which is missing; "
        "install that by `pip install triton`"
    )


def test_a_package_outside_of_the_peers_is_not_installed_by_its_name() -> None:
    """A package on the index that has the name may be a stranger's."""
    lost = ModuleNotFoundError("No module named 'own'", name="own")
    assert str(missing_package("own-sync", lost)) == "own-sync is missing"
    lost = ModuleNotFoundError("No module named 'part'", name="part")
    assert str(missing_package("own-sync", lost)) == (
        "own-sync cannot be imported, since it needs part, which is missing"
    )
    assert {"fairscale", "megatron-core"} <= packages_of_peers()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"),
    [("fairscale", "fairscale"), ("megatron-fsdp", "megatron_fsdp")],
)
def test_a_sharded_peer_is_silent_on_simulated_ranks(name: str, package: str) -> None:
    pytest.importorskip(package, reason=f"pip install --no-deps {package}")
    assert verify(name, ranks=4, examples=6, seed=3).violations == ()


@pytest.mark.slow
def test_the_stream_of_the_wrapping_is_waited_for_since_the_repair() -> None:
    pytest.importorskip("megatron", reason="pip install --no-deps megatron-core")
    if Version(version("megatron-core")) >= Version("0.17.0"):
        assert verify("megatron-training", ranks=2, examples=6, seed=0).violations == ()
        return
    with pytest.raises(PropertyViolation, match="reduced_before_accumulated"):
        verify("megatron-training", ranks=2, examples=6, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["megatron", "megatron-shards"])
def test_megatron_is_silent_on_simulated_ranks(name: str) -> None:
    pytest.importorskip("megatron", reason="pip install --no-deps megatron-core")
    assert verify(name, ranks=4, examples=10, seed=3).violations == ()


@pytest.mark.slow
def test_shards_that_are_not_gathered_are_found() -> None:
    pytest.importorskip("megatron", reason="pip install --no-deps megatron-core")
    from syncverify.subjects.megatron import MegatronSubject, ShardedMegatronSubject

    class GathersNothing(ShardedMegatronSubject):
        synchronize = MegatronSubject.synchronize

    scenario = one_parameter(2, "p0", (300,))
    found = violations(GathersNothing, scenario)
    assert "gradient_equals_reference" in {violation.property for violation in found}


# DeepSpeed's ZeRO, and what its contract means.


TWO_DTYPES = Scenario(
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
    run = SimBackend().run(TWO_DTYPES, subject)
    declared = replace(strict, reduces_each_micro_batch=True)
    causes, excused = (
        {violation.cause for violation in check(TWO_DTYPES, run, capabilities)}
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
        run = backend.run(TWO_DTYPES, subject)
    finally:
        backend.close()
    assert check(TWO_DTYPES, run, subject.capabilities) == []
