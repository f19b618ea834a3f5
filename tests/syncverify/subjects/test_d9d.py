"""d9d, which takes streams from `torch.cuda` by name, runs on CPU as it is."""

import pytest

from syncverify import verify
from syncverify.playing.choice import limits_of, open_backend
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import Subject


def test_d9d_runs_unmodified_and_keeps_its_promises() -> None:
    pytest.importorskip("d9d", reason="pip install --no-deps d9d")
    assert verify("d9d", ranks=4, examples=25, seed=0).violations == ()


@pytest.mark.parametrize("backend", ["gloo", "fake"])
def test_the_order_of_streams_is_not_judged_where_there_is_none(backend: str) -> None:
    takes = Capabilities(takes_cuda_streams=True)
    (limits,) = [each for each in limits_of(backend, takes) if "streams" in each]
    assert limits == (
        f"not judged on {backend}: the order of streams, since all work runs at once there; "
        "play the subject on sim as well"
    )
    assert not [each for each in limits_of("sim", takes) if "streams" in each]
    open_backend(backend, Subject("d9d", PlainGrads, takes)).close()
