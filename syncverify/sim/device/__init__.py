"""The virtual device: streams, events, and the streams of the autograd engine."""
