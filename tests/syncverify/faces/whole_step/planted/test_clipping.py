"""Unscaling after clipping, between right gradients and the optimizer."""

import functools

import pytest
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import DeviceMesh

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import NotClipped, Scaled
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted.steps import (
    average,
    compare,
    mean_square,
    with_gradients,
)

pytestmark = pytest.mark.slow

LIMIT = 0.1


def step(model, batch, mesh, optimizer, scaler, *, unscales_late=False):
    scaler.scale(mean_square(model, batch)).backward()
    average(model.parameters(), mesh, "dp")
    if not unscales_late:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


play = functools.partial(
    compare, clip=LIMIT, scaler=lambda: GradScaler("cpu", init_scale=1024.0)
)


@pytest.mark.long
def test_unscaling_after_clipping_is_named() -> None:
    result = play(step=functools.partial(step, unscales_late=True))
    (mistake,) = result.mistakes
    cause = mistake.finding.cause
    assert isinstance(cause, Scaled)
    assert cause.is_scale
    assert mistake.finding.quantity is Quantity.GRADIENT
    assert Quantity.STEPPED in mistake.finding.follows
    assert "multiplied by the scale of the loss, 1024" in str(result)
    assert "unscale gradients before they are clipped" in str(result)


@pytest.mark.long
def test_unscaling_before_clipping_is_silent() -> None:
    result = play(step=step)
    assert result.is_right, str(result)


@pytest.mark.parametrize("plain", [mean_square, None])
def test_a_scaler_that_is_off_counts_as_none(plain: object) -> None:
    off = functools.partial(GradScaler, "cpu", enabled=False)
    result = compare(step=step, loss=plain, scaler=off, clip=LIMIT)
    assert result.is_right, str(result)
    words = [each.variation and each.variation.word for each in result.plays]
    assert {"overflow", "nan", "local-overflow"}.isdisjoint(words)
    assert all(
        not rank.scales for each in result.plays for rank in each.simulation.results
    )


TOO_LARGE = 1000.0


def clip_large(model: nn.Module, mesh: DeviceMesh) -> None:
    """Clip by a limit that no norm reaches."""
    nn.utils.clip_grad_norm_(model.parameters(), TOO_LARGE)


clips, forgets = with_gradients(clip_large), with_gradients(lambda *_: None)


def _play_limit(
    step: object, plain: object = mean_square, clip: float | None = None
) -> Parity:
    return compare(loss=plain, step=step, clip=clip)


@pytest.mark.long
def test_clipping_that_no_norm_reaches_is_tried_with_large_gradients() -> None:
    (mistake,) = _play_limit(forgets, clip=TOO_LARGE).mistakes
    assert isinstance(mistake.finding.cause, NotClipped)
    right = _play_limit(clips, clip=TOO_LARGE)
    assert right.is_right, str(right)
    assert "never clipped" not in str(right)


@pytest.mark.long
@pytest.mark.parametrize("plain", [mean_square, None])
def test_clipping_that_is_never_tried_is_said_to_be_not_shown(plain: object) -> None:
    text = str(_play_limit(clips, plain))
    assert "not shown: clipping on dp=2 never clipped: norms up to " in text
    assert "max_norm 1000" in text
    assert "never clipped" not in str(_play_limit(forgets, plain))
