"""How long buffers live, and who still uses them."""
