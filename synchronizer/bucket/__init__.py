"""One bucket: its flat buffer, the gradient views into it, and its state."""
