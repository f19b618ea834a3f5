"""Defects of gradient synchronizers, each from a public report, and their fixed twins."""
