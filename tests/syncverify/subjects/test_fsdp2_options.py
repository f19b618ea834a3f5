"""FSDP2 with its switches: right as torch documents them, and the division that is done twice."""

import pytest
from torch.distributed.fsdp._fully_shard import _fsdp_collectives

from syncverify import verify
from syncverify.errors import UsageError
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.verification.verify import PropertyViolation
from tests.programs import violations


def scenario(num_ranks: int, dtype: str = "float32") -> Scenario:
    spec = ParameterSpec("p0", (3, 2), ("R",), dtype=dtype)
    return Scenario(MeshSpec((num_ranks,), ("dp",)), (spec,), (2, 1), 2**20)


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    "fsdp2:gradient_divide_factor=2",
    "fsdp2:gradient_divide_factor=4,force_sum_reduction_for_comms=true",
    "fsdp2:gradient_divide_factor=0.5,reduce_dtype=float64",
    "fsdp2:gradient_divide_factor=1,force_sum_reduction_for_comms=true,shard_size=1",
    "fsdp2:gradient_divide_factor=2,shard_size=1",
    "fsdp2:gradient_sync=each,reshard_after_forward=false,reshard=last",
    "hsdp:all_reduce=last,shard_size=1,reduce_dtype=float64",
    "hsdp:all_reduce=last,gradient_divide_factor=2",
    "replicate-fsdp:force_sum_reduction_for_comms=true,reduce_dtype=float32",
])  # fmt: skip
def test_a_right_use_of_its_switches_is_right(options: str) -> None:
    for num_ranks in (2, 4):
        assert violations(options, scenario(num_ranks)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "played"),
    [
        ("force_sum_reduction_for_comms=true,shard_size=1", scenario(2)),
        ("force_sum_reduction_for_comms=true", scenario(1)),
        ("reduce_dtype=float64", scenario(1)),
        ("shard_size=1", scenario(2, "float16")),
    ],
)
def test_a_shard_group_of_one_rank_divides_twice(
    options: str, played: Scenario
) -> None:
    """See docs/findings.md."""
    first, *_ = violations(f"fsdp2:gradient_divide_factor=2,{options}", played)
    assert first.cause == "scaled"


@pytest.mark.slow
def test_one_division_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one of torch's two divisions, nothing is found."""
    monkeypatch.setattr(
        _fsdp_collectives, "_div_if_needed", lambda tensor, factor: None
    )
    assert (
        violations(
            "fsdp2:gradient_divide_factor=2,force_sum_reduction_for_comms=true",
            scenario(1),
        )
        == []
    )


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_group_larger_than_every_world_is_refused(ranks: int) -> None:
    with pytest.raises(UsageError) as caught:
        verify("hsdp:shard_size=4,reshard=last", ranks=ranks, examples=1, seed=0)
    assert str(caught.value) == (
        f"subject 'hsdp:shard_size=4,reshard=last': expected ranks >= 4, got {ranks}: "
        "shard_size=4 has no effect on fewer"
    )


@pytest.mark.long
def test_a_search_finds_the_second_division() -> None:
    with pytest.raises(PropertyViolation) as caught:
        verify(
            "fsdp2:gradient_divide_factor=2,force_sum_reduction_for_comms=true",
            examples=10,
            seed=0,
        )
    text = str(caught.value)
    assert "it is multiplied by 1/2, which no number" in text
    assert "in foreach_reduce: reduce_output.copy_(reduce_scatter_input / " in text
    assert "in _div_if_needed: tensor.div_(div_factor)" in text
