"""Modules that the benchmarks share."""
