#!/bin/bash
# A Dask cluster for topsign on a handful of hosts that ssh reaches, all with the same environment at the same path:
#   HOSTS="first second third" ./ssh.sh
# The scheduler runs on the first host, a worker with all cores on each. Ctrl-C ends them all.
set -euo pipefail
read -r -a hosts <<< "$HOSTS"
port=${PORT:-8786}
bin=${BIN:-$(dirname "$(command -v dask)")}

trap 'kill $(jobs -p) 2> /dev/null' EXIT
ssh -tt "${hosts[0]}" "$bin/dask" scheduler --host 0.0.0.0 --port "$port" &
for host in "${hosts[@]}"; do
  ssh -tt "$host" "$bin/dask" worker "tcp://${hosts[0]}:$port" --nworkers 1 --death-timeout 60 &
done
echo "topsign search CODES QUERIES --scheduler tcp://${hosts[0]}:$port"
wait
