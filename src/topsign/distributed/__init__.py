"""Encoding and search on a Dask cluster, whose workers write, hold and search segments. Needs the extra distributed.

The index is a folder like any other, on a file system shared by all workers or in a bucket (s3://, gs:// and so on).

>>> import numpy as np, tempfile, topsign as ts
>>> folder = tempfile.TemporaryDirectory()
>>> signals = np.random.default_rng(0).standard_normal((1000, 512)).astype(np.float32)
>>> np.save(f"{folder.name}/signals.npy", signals)
>>> encoder = ts.Encoder(family="adaptive", n_bits=64, random_state=7).fit(signals)
>>> out = f"{folder.name}/codes.topsign"
>>> ts.distributed.encode(f"{folder.name}/signals.npy", out, encoder, segment_entries=300)
EncodingResult(version=3, n_entries=1000, n_segments=4, n_written=4)
>>> with ts.distributed.open(out) as index:
...     index.search(signals[[5, 7]] + 0.5, k=1).ids
array([[5],
       [7]])
>>> len(ts.open_index(out))
1000
>>> folder.cleanup()
"""

from __future__ import annotations

from ..errors import install as _install

try:
    import dask
    import distributed
    import fsspec
except ImportError as missing:
    raise ImportError(
        f"topsign.distributed needs dask, distributed and fsspec, but {missing}; {_install('distributed')}"
    ) from None

from .encoding_job import EncodingResult, encode
from .index import ClusterIndex, open

__all__ = ["ClusterIndex", "EncodingResult", "encode", "open"]

del dask, distributed, fsspec
