"""One thread a process, and the same examples on every run."""

import os

import pytest
import torch
from hypothesis import Phase, settings

# The variable is for the processes that tests start; the call is for this one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)

settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
# New examples every night: pytest --hypothesis-profile=nightly
settings.register_profile(
    "nightly", deadline=None, derandomize=False, print_blob=True, max_examples=1000
)
# One test says how to use it: tests/syncverify/ordering/test_reachability.py.
settings.register_profile(
    "ten-thousand",
    deadline=None,
    derandomize=True,
    print_blob=True,
    max_examples=10_000,
)
# Played for every mutant of the harness, where any example will do: docs/mutants.md.
settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    max_examples=15,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("ci")

# A thousand scenarios take minutes, and more where others use the machine.
NIGHTLY_TIMEOUT_SECONDS = 3600


def takes_long(item: pytest.Item) -> bool:
    """Tell whether a test is marked slow, or one of many examples."""
    is_drawn = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return is_drawn or item.get_closest_marker("slow") is not None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave what is marked `nightly` to the nights, and say how much that is."""
    if settings.get_current_profile_name() == "mutation":  # most mutants die early
        items.sort(key=takes_long)
    if settings.get_profile("nightly").max_examples <= settings().max_examples:
        for item in items:
            item.add_marker(pytest.mark.timeout(NIGHTLY_TIMEOUT_SECONDS))
        return
    later = [item for item in items if item.get_closest_marker("nightly")]
    if later:
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if item not in later]
