"""Reproduction of the paper: its formulas as printed, its errata, and all of its figures and tables."""
