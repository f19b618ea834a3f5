"""Mistakes put into our own synchronizer, one at a time, to see that each is noticed.

    python -m studies.mutants --jobs 2 --json mutants.jsonl

`ordering.py` and `state.py` hold the mistakes, which mutmut does not make, `targets.py` their places,
`trial.py` the trial of a mutant, `equivalent.toml` the mutants that change nothing, with
reasons. docs/how-we-know.md has the figures and explains them.
"""
