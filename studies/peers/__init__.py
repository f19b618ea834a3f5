"""Verifies the synchronizers of other projects, all by one command: `python -m studies.peers`."""
