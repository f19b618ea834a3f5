"""Explanations of a violation that was found, and small changes of the source that mend it."""
