"""Adapters: synchronizers of other projects behind the subject API."""
