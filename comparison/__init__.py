"""Other ways to find the defects of the bug bank, and what they find of them.

`python -m comparison`.
"""
