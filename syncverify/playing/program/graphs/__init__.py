"""Features of autograd's engine, as small exact operators that scenarios compose."""
