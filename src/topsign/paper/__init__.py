"""The paper: its formulas as printed, its errata, and every figure and table of it reproduced."""
