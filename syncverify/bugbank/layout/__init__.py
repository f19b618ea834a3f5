"""Which gradient lies where in which bucket."""
