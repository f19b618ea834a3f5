"""The judge: reference gradients, decoding of wrong sums, and properties."""
