"""The words of data that a training is played with."""

from __future__ import annotations

from syncverify.scenario.settings import DATA

PLAIN, UNEQUAL_TOKENS, PADDING, OVERFLOW, LOCAL_OVERFLOW, NAN, ALL_ONES = DATA
