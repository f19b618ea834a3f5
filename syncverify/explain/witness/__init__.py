"""The witness of a race: a legal order that leads to a wrong gradient."""
