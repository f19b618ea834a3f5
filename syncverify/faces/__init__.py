"""Whole runs of the kinds of things that users give: a function, a training, a script, one scenario."""
