"""Values of a whole step beside those of one rank, and the causes of wrong ones."""
