"""The same seed draws the same scenarios, whatever else is imported.

Hypothesis mixes constants that it finds in local source files into what it draws. For a
unit test that is a help; for a search that is named by its seed it means that another
entry point, or an edit of the subject, would draw other scenarios. There is no setting
against it, so this module reaches into Hypothesis, as only `independence.py` does beside
it; a test says what it relies on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants


@contextmanager
def blind_to_local_code() -> Iterator[None]:
    """Keep constants of local source files out of what Hypothesis draws."""
    nothing = Constants()
    providers.CONSTANTS_CACHE.cache.clear()
    try:
        with patch.object(providers, "_get_local_constants", lambda: nothing):
            yield
    finally:
        providers.CONSTANTS_CACHE.cache.clear()
