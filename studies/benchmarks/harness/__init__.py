"""The harness beside other players of its scenarios: `python -m studies.benchmarks.harness`.

Every number is a ratio of contestants that took turns in this process, or a cost with a
target. docs/performance.md explains each number.
"""
