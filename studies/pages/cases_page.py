"""Write the page of other projects' test cases from the table of ours: `make catalogue`."""

import csv
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from studies.documents import ROOT, Document, table

TESTS: Final = ROOT / "tests" / "conformance"
TABLE: Final = TESTS / "cases.csv"
VERDICTS: Final = ("passes", "refuses", "does not apply")
_TORCH: Final = "https://github.com/pytorch/pytorch/blob"
_D9D: Final = "https://github.com/d9d-project/d9d/blob"
_INTERNAL: Final = "torch/testing/_internal/distributed/distributed_test.py"


class Suite(NamedTuple):
    """A file or a folder with test cases of another project.

    Attributes:
        title: The heading on the page.
        source: Its address, in the version that was read.
    """

    title: str
    source: str


SUITES: Final = {
    "d9d-sync": Suite(
        "d9d: gradient synchronizer",
        f"{_D9D}/1c92bf7b2bb6c0f29a66e13f98aae2082788f707/test/d9d_test/internals/grad_sync",
    ),
    "d9d-norm": Suite(
        "d9d: gradient norm",
        f"{_D9D}/5847bf4700ebdf928d8ffd34d0dd298babd0334f/test/d9d_test/internals/grad_norm",
    ),
    "gloo": Suite(
        "torch: test_c10d_gloo.py, DDP and its reducer",
        f"{_TORCH}/005a6a0b9ec22601279bf00a3f32e8696eee3b68/test/distributed/test_c10d_gloo.py",
    ),
    "common": Suite(
        "torch: test_c10d_common.py, DDP and buckets",
        f"{_TORCH}/00eb953ba8db83662cebaf661fd666361d5d83fb/test/distributed/test_c10d_common.py",
    ),
    "distributed": Suite(
        "torch: distributed_test.py, DDP", f"{_TORCH}/v2.13.0/{_INTERNAL}"
    ),
    "replicate": Suite(
        "torch: test_replicate.py",
        f"{_TORCH}/a0a7d4cbec3368a675df716583f0c90c9cb1093a/test/distributed/_composable/test_replicate.py",
    ),
    "compiler": Suite(
        "torch: test_replicate_with_compiler.py",
        f"{_TORCH}/03b5a2601415e52e1bfcfe38677e74e5afe75e83/test/distributed/_composable/test_replicate_with_compiler.py",
    ),
    "replicate-fsdp": Suite(
        "torch: test_replicate_with_fsdp.py",
        f"{_TORCH}/3591bdb36b3997ad37d39660326d11b89a88bce6/test/distributed/_composable/test_replicate_with_fsdp.py",
    ),
    "replicate-training": Suite(
        "torch: test_replicate_training.py",
        f"{_TORCH}/01dd2c2b42112732dc7ae9aba255c1600f7d0a97/test/distributed/_composable/test_replicate_training.py",
    ),
    "replicate-precision": Suite(
        "torch: test_replicate_mixed_precision.py",
        f"{_TORCH}/0c9aff401f4f84e7955c8f625383fd63a325b97a/test/distributed/_composable/test_replicate_mixed_precision.py",
    ),
    "ddp-2d": Suite(
        "torch: test_ddp_2d_parallel.py",
        f"{_TORCH}/6e9a49831fa4036da7f289adeae58deeb5ffe89f/test/distributed/tensor/parallel/test_ddp_2d_parallel.py",
    ),
}


class Case(NamedTuple):
    """A test case of another project.

    Attributes:
        suite: Key of its suite.
        name: The name that the project gives it, and the part of it that is meant.
        verdict: One of `VERDICTS`.
        test: Our test, as `file::function`; empty where the case does not apply.
        reason: Why it does not apply, or what is different here.
    """

    suite: str
    name: str
    verdict: str
    test: str
    reason: str


def cases() -> list[Case]:
    """Read the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return [Case(*row) for row in rows]


def page() -> str:
    """Return the number of cases by verdict."""
    return "\n".join(_counts(cases()))


def _counts(listed: list[Case]) -> Iterator[str]:
    counted = Counter((case.suite, case.verdict) for case in listed)
    sums = Counter(case.verdict for case in listed)
    rows = [
        (f"[{suite.title}]({suite.source})", *(counted[key, each] for each in VERDICTS))
        for key, suite in SUITES.items()
    ]
    rows.append((f"all {len(listed)}", *(sums[each] for each in VERDICTS)))
    return table(("cases", *VERDICTS), rows)


PAGE: Final = Document("docs/synchronizer-conformance.md", page, "cases")
