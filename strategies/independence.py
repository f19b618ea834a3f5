"""Examples of which none is made from another.

Hypothesis' own backend makes most examples from the one before: it copies one choice over
another like it, up to five times in a row. That finds what depends on equal values. But of
2,000 scenarios 570 are equal to an earlier one, most others have no word that the one
before had not, and one in seven that are begun runs out of choices and is thrown away. Of
a space of thousands of pairs that leaves nearly 5 % unseen, where scenarios of their own
leave two in a thousand. There is no setting against it, but Hypothesis leaves alone what
other backends draw; a test says what this relies on.
"""

from __future__ import annotations

from typing import Final

from hypothesis.internal.conjecture.providers import (
    AVAILABLE_PROVIDERS,
    HypothesisProvider,
)

_NAME: Final = "syncverify-independent"


def independent() -> str:
    """Register Hypothesis' own way to draw as a backend of another name.

    Failing examples are shrunk as ever, which Hypothesis does without the backend.

    Returns:
        The name, for `settings(backend=...)`.
    """
    AVAILABLE_PROVIDERS.setdefault(_NAME, HypothesisProvider)
    return _NAME
