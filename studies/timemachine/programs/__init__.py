"""Programs of pairs: each calls a part of a release, with drawn arguments.

A module has `draw`, which returns the arguments of a scenario, among them `ranks`; and `program`,
which each rank calls with its number and these arguments. `syncverify.simulate` judges its streams,
collectives and errors.
"""
