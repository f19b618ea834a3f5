"""All micro-traces with verdicts that were reached without the judge of order."""

from __future__ import annotations

from case_collectives import COLLECTIVES, SANITIZER
from case_pairs import pairs
from case_ranks import LIFETIMES, ON_HOST, RANKS

CASES = [*pairs(), *SANITIZER, *COLLECTIVES, *LIFETIMES, *RANKS, *ON_HOST]
