"""fairscale, Megatron-FSDP and Megatron as its training loop wraps it, where they are installed."""

import sys

import pytest

from syncverify import PropertyViolation, verify
from syncverify.errors import SubjectError
from syncverify.subjects.subject import resolve

pytestmark = pytest.mark.filterwarnings("ignore")  # the packages warn on import


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("fairscale", "fairscale.nn.data_parallel", "fairscale==0.4.13"),
        ("megatron-fsdp", "megatron_fsdp", "megatron-fsdp==0.6.1"),
        ("megatron-training", "megatron.core.distributed", "megatron-core==0.16.1"),
    ],
)
def test_a_package_that_is_missing_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str
) -> None:
    for part in (module, module.partition(".")[0]):
        monkeypatch.setitem(sys.modules, part, None)
    for adapter in ("fairscale", "megatron", "megatron_fsdp", "megatron_training"):
        monkeypatch.delitem(
            sys.modules, f"syncverify.subjects.{adapter}", raising=False
        )
    with pytest.raises(SubjectError, match=f"pip install --no-deps {package}") as told:
        resolve(name)
    assert "\n" not in str(told.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"),
    [("fairscale", "fairscale"), ("megatron-fsdp", "megatron_fsdp")],
)
def test_it_is_silent_on_simulated_ranks(name: str, package: str) -> None:
    pytest.importorskip(package, reason=f"pip install --no-deps {package}")
    assert verify(name, ranks=4, examples=6, seed=3).violations == ()


@pytest.mark.slow
def test_the_stream_of_the_wrapping_is_not_waited_for() -> None:
    pytest.importorskip("megatron", reason="pip install --no-deps megatron-core")
    with pytest.raises(PropertyViolation, match="reduced_before_accumulated"):
        verify("megatron-training", ranks=2, examples=6, seed=0)
