"""The result of a program on simulated ranks as text, JSON and page."""
