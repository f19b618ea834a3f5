"""torch's own distributed tests on the simulated machine, beside gloo."""
