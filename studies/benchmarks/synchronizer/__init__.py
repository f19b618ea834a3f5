"""The gradient synchronizer beside named peers: `python -m studies.benchmarks.synchronizer`.

Every number is a ratio of contestants that took turns in the same processes, and has a target.
docs/performance.md explains each number.
"""
