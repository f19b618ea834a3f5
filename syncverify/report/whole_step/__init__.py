"""A training beside one rank as text, JSON and page."""
