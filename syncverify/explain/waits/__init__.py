"""Which waits of a subject are needed: each is taken out, in the model and in a play."""
