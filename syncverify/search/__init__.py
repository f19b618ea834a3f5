"""The search for violations of a subject: `search.py` plays all scenarios, then shrinks violations."""
