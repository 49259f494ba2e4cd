#!/bin/bash
#SBATCH --array=0-{last}
{options}
#SBATCH --output={folder}/%A_%a_0_log.out

# The batch shell gets the signal, a minute before the time limit and at a preemption, and becomes the worker.
exec {command}
