"""What hooks are told by the autograd engine, and when."""
