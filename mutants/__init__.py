"""Mistakes put into our own synchronizer, one at a time, to see that each is noticed.

    python -m mutants --jobs 2 --json mutants.json

`operators.py` and its neighbours say which mistakes; `targets.py` where they are put;
`trial.py` how one is tried; `equivalent.toml` which change nothing, and why. Figures and
how to read them: docs/mutants.md.
"""
