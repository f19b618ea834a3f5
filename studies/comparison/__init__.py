"""Compare other methods with syncverify on the defects of the bug bank.

`python -m studies.comparison`.
"""
