"""Encoding a memory-mapped file holds its codes and a bounded workspace, not the file."""

import subprocess
import sys

import numpy as np

PROGRAM = """
import resource, sys
import numpy as np, topsign as ts

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

signals = np.load(sys.argv[1], mmap_mode="r")
ts.AdaptiveEncoder(n_bits=8, random_state=7).fit(np.eye(1, 64)).encode(np.ones(64))
before = peak()
codes = ts.AdaptiveEncoder(n_bits=512, random_state=7).fit(signals).encode(signals)
print(peak() - before, len(codes))
"""


def test_a_memory_mapped_file_is_not_held(tmp_path):
    block = np.random.default_rng(0).standard_normal((500, 8192)).astype(np.float32)
    signals = np.lib.format.open_memmap(tmp_path / "signals.npy", "w+", np.float32, (8000, 8192))
    for start in range(0, 8000, 500):
        signals[start : start + 500] = block
    del signals
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "signals.npy")]
    grown, n_codes = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert n_codes == 8000
    # 3.6 MB of codes, 12 MB of blocks (signals, projections, locations), and the pages of a few blocks;
    # the file has 262 MB.
    assert grown < 60
