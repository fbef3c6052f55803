"""Encode and search on a Dask cluster: workers write, hold and search shards of codes; needs the extra distributed.

>>> import numpy as np, tempfile, topsign as ts
>>> folder = tempfile.TemporaryDirectory()
>>> signals = np.random.default_rng(0).standard_normal((1000, 512)).astype(np.float32)
>>> np.save(f"{folder.name}/signals.npy", signals)
>>> encoder = ts.AdaptiveEncoder(n_bits=64, random_state=7).fit(signals)
>>> out = f"{folder.name}/codes"
>>> ts.distributed.encode(f"{folder.name}/signals.npy", out, encoder, shard_entries=300)
Encoded(version=1, n_entries=1000, n_shards=4, n_written=4)
>>> with ts.distributed.open(out) as index:
...     index.search(signals[[5, 7]] + 0.5, k=1).ids
array([[5],
       [7]])
>>> folder.cleanup()
"""

from __future__ import annotations

from ..errors import install as _install

try:
    import dask.array
    import distributed
    import fsspec
    import pyarrow.parquet
except ImportError as missing:
    raise ImportError(
        f"topsign.distributed needs dask, distributed, fsspec and pyarrow, but {missing}; {_install('distributed')}"
    ) from None

from .compact import Compacted, compact
from .convert import merge, split
from .encode import Encoded, encode
from .search import ShardedIndex, open
from .verify import verify

__all__ = ["Compacted", "Encoded", "ShardedIndex", "compact", "encode", "merge", "open", "split", "verify"]

del dask, distributed, fsspec, pyarrow
