"""The same verbs on a Dask cluster: codes in shards that workers write, hold and search; needs the extra distributed.

>>> import numpy as np, tempfile, topsign as ts
>>> folder = tempfile.TemporaryDirectory()
>>> signals = np.random.default_rng(0).standard_normal((1000, 512)).astype(np.float32)
>>> np.save(f"{folder.name}/signals.npy", signals)
>>> encoder = ts.AdaptiveEncoder(n_bits=64, random_state=7).fit(signals)
>>> out = f"{folder.name}/codes"
>>> ts.distributed.encode(f"{folder.name}/signals.npy", out, encoder, shard_entries=300)
Encoded(version=1, entries=1000, shards=4, written=4)
>>> with ts.distributed.open(out) as index:
...     index.search(signals[[5, 7]] + 0.5, k=1).ids
array([[5],
       [7]])
>>> folder.cleanup()
"""

from __future__ import annotations

from .._checks import raise_without_dask

try:
    import dask.array
    import distributed
    import fsspec
    import pyarrow.parquet
except ImportError as missing:
    raise_without_dask(missing)

from .checking import verify
from .converting import merge, split
from .encoding import Encoded, encode
from .searching import ShardedIndex, open

__all__ = ["Encoded", "ShardedIndex", "encode", "merge", "open", "split", "verify"]

del dask, distributed, fsspec, pyarrow
