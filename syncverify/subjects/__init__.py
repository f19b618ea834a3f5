"""Subjects: their API, how to find them by name, and adapters of other projects."""
