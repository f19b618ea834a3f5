"""Explanations of a violation that was found, and small changes of the source that mend it.

======================= ==============================================================
module                  content
======================= ==============================================================
`diagnosis`             all that is known of a violation beside its property
`other_scenarios`       scenarios that show more than the smallest one
`left_out`              lines that kept the subject from what it left out
`left_over`             values that an earlier step left in the subject
`ran_lines`             lines that ran: those that decide, those that act
`fix_search`            changes of the source, each played; most other modules serve this one
======================= ==============================================================
"""
