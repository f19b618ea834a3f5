"""The gradient synchronizer beside named peers: `python -m benchmarks.synchronizer`.

Every number is a ratio (or a cost a hook) of contestants that took turns in the same
processes, and stands beside its target. docs/performance.md says what each one means.
"""
