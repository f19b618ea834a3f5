"""Calls on a cluster of `dask.distributed`, as a crew of a search.

The package `distributed` is an extra, and is imported when a cluster is used.
"""
