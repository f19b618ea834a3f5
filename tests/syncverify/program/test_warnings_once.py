"""Each distinct warning is shown once, though torch changes the filters in between."""

import logging
import warnings

import torch.distributed.tensor._redistribute

from syncverify.program.warnings_once import show_warnings_once


def test_a_warning_is_shown_once_by_message_and_place() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        show_warnings_once()
        for number in (1, 1, 2, 2):
            with (
                warnings.catch_warnings()
            ):  # as torch does: Python forgets what it showed
                warnings.warn(f"slow path {number}", stacklevel=1)
        warnings.warn("slow path 1", stacklevel=1)  # another line
        warnings.warn("Error detected in MulBackward0.", stacklevel=1)
    assert [str(each.message) for each in shown] == [
        "slow path 1", "slow path 2", "slow path 1",
    ]  # fmt: skip


def test_advice_on_speed_is_not_among_the_lines_of_a_report() -> None:
    advice = logging.getLogger(torch.distributed.tensor._redistribute.__name__)
    before = advice.level
    try:
        with warnings.catch_warnings():
            show_warnings_once()
        assert not advice.isEnabledFor(logging.WARNING)
        assert advice.isEnabledFor(logging.ERROR)
    finally:
        advice.setLevel(before)
