#!/bin/bash
# A Dask cluster for topsign in one Slurm allocation, without further packages:
#   sbatch slurm.sh /shared/signals /shared/codes
#SBATCH --job-name=topsign
#SBATCH --nodes=9
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=04:00:00
set -euo pipefail

signals=$1
codes=$2
scheduler_file=$PWD/scheduler-$SLURM_JOB_ID.json

dask scheduler --port 0 --scheduler-file "$scheduler_file" &
scheduler=$!
trap 'kill $scheduler; rm -f "$scheduler_file"' EXIT
until [ -s "$scheduler_file" ]; do sleep 1; done

# One worker per node; the first node also runs the scheduler and this script.
srun dask worker --scheduler-file "$scheduler_file" --nworkers 1 --nthreads 16 --memory-limit 56GiB &

address=$(python -c "import json, sys; print(json.load(open(sys.argv[1]))['address'])" "$scheduler_file")
topsign build "$signals" -o "$codes" --n-bytes 24 --resume --scheduler "$address"
topsign verify "$codes" --scheduler "$address"
