"""Prose of the repository, counted: `python -m studies.prose` is a part of `make lint`."""
