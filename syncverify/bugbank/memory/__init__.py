"""Defects of memory: the lifetime of buffers that streams still use."""
