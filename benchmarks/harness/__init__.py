"""The harness beside what else could play its scenarios: `python -m benchmarks.harness`.

Every number is a ratio of contestants that took turns in this process, or a cost that
has a target. docs/performance.md says what each one means.
"""
