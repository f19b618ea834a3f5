"""Tools that need a checkout and never ship: `python -m studies.benchmarks.harness`."""
