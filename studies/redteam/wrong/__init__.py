"""Wrong synchronizers, each with a defect where it is hard to see."""
