"""Releases of torch and of other projects, and the sentences of our pages about them."""
