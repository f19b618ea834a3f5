"""Warnings of the ranks of a script: each rank keeps its own, and each is shown once.

Under torchrun every rank shows the same ones.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from syncverify.plain_text import named


@contextmanager
def warnings_kept() -> Iterator[dict[str, None]]:
    """Keep the warnings of a block, each once, as Python would show them."""
    kept = dict[str, None]()

    def keep(message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
        kept[warnings.formatwarning(message, category, filename, lineno)] = None

    with patch.object(warnings, "showwarning", keep):
        yield kept


def show_warnings(of_ranks: Mapping[int, Sequence[str]]) -> None:
    """Show each warning once, with the ranks that gave it."""
    ranks_of = defaultdict[str, list[int]](list)
    for rank, of_rank in of_ranks.items():
        for each in of_rank:
            ranks_of[each].append(rank)
    for text, ranks in ranks_of.items():
        sys.stderr.write(f"{named('rank', ranks)}: {text}")
