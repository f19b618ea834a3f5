"""The report of a search, as text and as JSON."""
