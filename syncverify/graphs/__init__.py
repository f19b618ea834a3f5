"""What autograd's engine can do, as small exact operators that scenarios compose."""
