"""Calls on a cluster of `dask.distributed`, as a crew of a search.

=============== ==================================================================
module          content
=============== ==================================================================
`connection`    reach a scheduler, or start one here, and compare versions
`crew`          hand calls out, hear them, and repeat those that are lost
`local_worker`  workers that are started here
`versions`      versions of Python, torch and syncverify
`worker`        one call, in a process beside the worker
=============== ==================================================================

The package `distributed` is an extra, and is imported when a cluster is used.
"""
