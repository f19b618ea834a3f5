"""Measurements of this project: one package for each thing that is measured."""
