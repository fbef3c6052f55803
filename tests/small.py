"""Small index for tests with invalid or malicious input."""

import topsign as ts

N_FEATURES = 64


def make_index(**options):
    return ts.Index(family="adaptive", **{"n_features": N_FEATURES, "n_bits": 16, "random_state": 1} | options)
