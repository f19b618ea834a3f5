"""Backward: autograd hooks of parameters, and the end of the outermost backward."""
