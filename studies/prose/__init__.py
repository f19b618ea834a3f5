"""Prose of the repository, counted: `python -m prose` is a part of `make lint`."""
