"""Dask cluster of separate processes (a scheduler and workers) that tests may kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 300  # seconds to wait for processes to start on a busy machine

ENVIRONMENT = os.environ | {"TOPSIGN_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Processes:
    """Context manager of a cluster; workers have one thread and no nanny, so killed workers are not restarted."""

    def __init__(self, folder, n_workers=4, memory_limit="1GB"):
        self.folder = Path(folder)
        self.n_workers, self.memory_limit = n_workers, memory_limit
        self.address = None
        self._scheduler = None
        self._workers = []
        self._clients = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        told = self.folder / f"scheduler-{time.monotonic_ns()}.json"
        self._scheduler = self._run(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", told
        )
        deadline = time.monotonic() + PATIENCE
        while not (told.exists() and told.read_text().endswith("}")):
            assert self._scheduler.poll() is None, "the scheduler ended"
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.02)
        import json

        self.address = json.loads(told.read_text())["address"]
        for _ in range(self.n_workers):
            self.start_worker()

    def start_worker(self):
        options = (
            "--no-nanny",
            "--nthreads",
            1,
            "--no-dashboard",
            "--memory-limit",
            self.memory_limit,
            "--death-timeout",
            PATIENCE,
        )
        self._workers.append(self._run("worker", self.address, *options, "--local-directory", self.folder))

    def client(self):
        """Return a client after all workers have connected."""
        from distributed import Client

        client = Client(self.address, set_as_default=False)
        self._clients.append(client)
        client.wait_for_workers(self.n_workers, timeout=PATIENCE)
        return client

    def kill_worker(self, pid):
        """Kill a worker with SIGKILL and start another one."""
        os.kill(pid, signal.SIGKILL)
        self.start_worker()

    def kill_scheduler(self):
        self._scheduler.kill()
        self._scheduler.wait()

    def stop(self):
        for client in self._clients:
            client.close(timeout=PATIENCE)
        for process in (*self._workers, self._scheduler):
            process.kill()
            process.wait()
        self._clients, self._workers = [], []

    def _run(self, kind, *arguments):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, arguments)]
        with open(self.folder / f"{kind}.log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT, cwd=self.folder)
