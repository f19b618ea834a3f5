"""Right synchronizers, as their authors would write them; each mistake changes one line."""
