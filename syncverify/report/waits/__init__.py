"""The answers about waits as text, JSON and page."""
