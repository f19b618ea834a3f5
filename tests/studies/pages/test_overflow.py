"""A rank that overflows makes all ranks skip the step, or is seen to be overlooked."""

import pytest
import torch

from studies.pages.engine_matrix import RIGHT, WRONG, overflow_cell
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from tests.quality.planted.watching import RunsMicroBatches


class DropsWhatIsNotFinite(PlainGrads):
    """Sends zeros in place of values that are not finite, and keeps its own values."""

    def reduce(self, gradient: torch.Tensor) -> None:
        sent = gradient.clone()
        local = sent.to_local()
        local.copy_(local.nan_to_num(0.0, 0.0, 0.0))
        super().reduce(sent)
        own = gradient.to_local().detach()
        own.copy_(sent.to_local().detach().where(own.isfinite(), own))


class KeepsWhatIsNotFinite(PlainGrads):
    """Clears gradients that are finite only, and so never gets rid of the others."""

    def zero_grad(self) -> None:
        finite = all(p.grad.to_local().isfinite().all() for p in self.parameters)
        if finite:
            super().zero_grad()


@pytest.mark.parametrize("subject", [PlainGrads, RunsMicroBatches])
def test_a_subject_that_hands_an_overflow_on_is_right(subject: type) -> None:
    assert overflow_cell("sim", resolve(subject)) == RIGHT


@pytest.mark.parametrize("subject", [DropsWhatIsNotFinite, KeepsWhatIsNotFinite])
def test_a_subject_that_does_not_is_silently_wrong(subject: type) -> None:
    assert overflow_cell("sim", resolve(subject)) == WRONG
