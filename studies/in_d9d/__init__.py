"""Our synchronizer in the place of d9d's: its trainer, its manager of gradients, its tests."""
