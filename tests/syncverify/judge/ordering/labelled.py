"""All micro-traces with verdicts that were reached without the judge of order."""

from __future__ import annotations

from tests.syncverify.judge.ordering.case_collectives import COLLECTIVES, SANITIZER
from tests.syncverify.judge.ordering.case_host import ON_HOST
from tests.syncverify.judge.ordering.case_lifetimes import LIFETIMES
from tests.syncverify.judge.ordering.case_pairs import pairs
from tests.syncverify.judge.ordering.case_ranks import RANKS

CASES = [*pairs(), *SANITIZER, *COLLECTIVES, *LIFETIMES, *RANKS, *ON_HOST]
