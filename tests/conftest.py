"""One thread a process, and the same examples on every run."""

import os

import torch
from hypothesis import settings

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
settings.load_profile("ci")
