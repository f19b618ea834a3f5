"""The words of data that a training is played with; this module imports no torch."""

from __future__ import annotations

from typing import Final

PLAIN: Final = "plain"
UNEQUAL_TOKENS: Final = "unequal-tokens"
PADDING: Final = "padding"
OVERFLOW: Final = "overflow"
LOCAL_OVERFLOW: Final = "local-overflow"
NAN: Final = "nan"
ALL_ONES: Final = "all-ones"
DATA: Final = (PLAIN, UNEQUAL_TOKENS, PADDING, OVERFLOW, LOCAL_OVERFLOW, NAN, ALL_ONES)
