"""Defects of hooks: which ones the autograd engine calls, and when."""
