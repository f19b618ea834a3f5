"""Defects of numbers: terms, ranks and divisors of a sum."""
