"""Each distinct warning is shown once, though torch changes the filters in between."""

import logging
import traceback
import warnings
from types import ModuleType

import pytest
import torch._subclasses.fake_tensor
import torch.distributed as dist
import torch.distributed.fsdp._fully_shard._fsdp_common as fsdp
import torch.distributed.tensor._redistribute

from syncverify.program.warnings_once import show_warnings_once


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


@pytest.mark.parametrize(
    ("module", "hidden", "shown"),
    [
        (torch.distributed.tensor._redistribute, logging.WARNING, logging.ERROR),
        (torch._subclasses.fake_tensor, logging.ERROR, logging.CRITICAL),
    ],
)
def test_lines_of_torch_are_not_among_those_of_a_report(
    module: ModuleType, hidden: int, shown: int
) -> None:
    """Advice on speed, and errors that are raised as well."""
    logger = logging.getLogger(module.__name__)
    before = logger.level
    try:
        with warnings.catch_warnings():
            show_warnings_once()
        assert not logger.isEnabledFor(hidden)
        assert logger.isEnabledFor(shown)
    finally:
        logger.setLevel(before)


def test_what_fsdp_raises_is_not_printed_as_well(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dist, "get_rank", lambda: 3)
    for name, each in {"print": print, "traceback": traceback}.items():
        monkeypatch.setitem(vars(fsdp), name, each)
    for is_quiet in (False, True):
        if is_quiet:
            with warnings.catch_warnings():
                show_warnings_once()
        with pytest.raises(AssertionError, match="two dtypes"):
            fsdp._raise_assert_with_print("two dtypes")
        out, err = capfd.readouterr()
        assert bool(out) is bool(err) is not is_quiet
