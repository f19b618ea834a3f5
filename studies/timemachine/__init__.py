"""Plays real defects of real releases: the buggy release, the fixed one, and the remedy."""
