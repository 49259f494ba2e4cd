#!/bin/bash
#SBATCH --job-name=autotune-worker
#SBATCH --array=1-{number}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --exclusive
# The batch shell gets the signal, a minute before the time limit and at a preemption, and the worker drains.
#SBATCH --signal=B:TERM@60
# The service gives the worker's job to another worker; Slurm must not start a second attempt.
#SBATCH --no-requeue
#SBATCH --output={folder}/worker-%A_%a.log
{extra}
{command} &
worker=$!
trap 'kill -TERM "$worker" 2>/dev/null' TERM INT
# The first wait ends with the signal, the second with the worker.
wait "$worker"; code=$?
while kill -0 "$worker" 2>/dev/null; do wait "$worker"; code=$?; done
exit "$code"
