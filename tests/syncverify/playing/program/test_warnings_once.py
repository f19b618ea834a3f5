"""Each distinct warning is shown once, though torch changes the filters in between."""

import warnings

import pytest
import torch._subclasses.fake_tensor

from syncverify.playing.program.warnings_once import show_warnings_once


def test_a_warning_is_shown_once_by_message_and_place() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        show_warnings_once()
        for number in (1, 1, 2, 2):
            # As torch does: Python then forgets the warnings that it showed.
            with warnings.catch_warnings():
                warnings.warn(f"slow path {number}", stacklevel=1)
        warnings.warn("slow path 1", stacklevel=1)  # another line
        warnings.warn("Error detected in MulBackward0.", stacklevel=1)
    assert [str(each.message) for each in shown] == [
        "slow path 1", "slow path 2", "slow path 1",
    ]  # fmt: skip


def test_advice_on_strides_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        monkeypatch.context() as patched,
        warnings.catch_warnings(record=True) as shown,
    ):
        patched.setattr(warnings, "showwarning", warnings.showwarning)
        show_warnings_once()
        weight = torch.ones(3, 2, requires_grad=True)
        weight.grad = torch.ones(2, 3).t()
        torch.set_warn_always(True)
        try:
            weight.sum().backward()
        finally:
            torch.set_warn_always(False)
    assert not shown
