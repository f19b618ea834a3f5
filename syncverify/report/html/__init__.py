"""The report as one page of HTML: a model of plain values, a template, and its drawings."""
