"""Megatron-core's DDP as a subject, where it is installed."""

import pytest

from syncverify import verify
from tests.programs import one_parameter, violations

pytestmark = pytest.mark.filterwarnings("ignore")  # Megatron warns on import


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
