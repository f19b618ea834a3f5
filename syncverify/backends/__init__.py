"""Backends: threads, processes or GPUs on which the ranks of a scenario run."""
