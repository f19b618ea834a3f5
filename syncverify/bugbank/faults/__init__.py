"""Defects of state after an error."""
