"""The trace of a run: events, memory regions, and the recorder that writes them."""
