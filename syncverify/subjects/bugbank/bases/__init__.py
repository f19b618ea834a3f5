"""Small plain synchronizers of several architectures, all of them right."""
