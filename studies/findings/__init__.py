"""Plays the scripts of `examples/findings` under several releases of torch: `python -m studies.findings`."""
