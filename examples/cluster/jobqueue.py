"""Encode on a Slurm cluster with dask-jobqueue, from a login node: python jobqueue.py SIGNALS CODES."""

import sys

from dask_jobqueue import SLURMCluster
from distributed import Client

import topsign as ts

if __name__ == "__main__":
    signals, codes = sys.argv[1:]
    cluster = SLURMCluster(cores=16, processes=1, memory="64GB", walltime="04:00:00")
    cluster.scale(jobs=8)
    with Client(cluster) as client:
        encoder = ts.Index(8192, family="grouped", n_bytes=512, random_state=7)
        print(ts.distributed.encode(signals, codes, encoder, client=client))
