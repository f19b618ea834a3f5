"""fairscale, Megatron-FSDP and Megatron as its training loop wraps it, where they are installed."""

import sys
from importlib.metadata import version

import pytest
from packaging.version import Version

from syncverify import PropertyViolation, verify
from syncverify.errors import SubjectError
from syncverify.subjects.missing_package import missing_package, packages_of_peers
from syncverify.subjects.subject import resolve

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
