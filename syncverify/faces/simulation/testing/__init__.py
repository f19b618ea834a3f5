"""Tests on simulated ranks: a marker of pytest, a base class, and torch's own bases."""
