"""Dumps of torch's flight recorder: written from a trace, read from files, judged."""
