"""Repairs: small changes of the subject's source, each played."""
