"""The checks that need a GPU: `python -m studies.gpu`, some minutes on one device.

=================== ================================================================
module              holds
=================== ================================================================
`part`              the result of a part, and the device on which parts run
`real_streams`      the simulator's network on real streams, with delays and freed memory
=================== ================================================================

Each part is one more module. Where there is no GPU, a part runs as far as it can on the CPU,
and its row on the page says so.
"""
