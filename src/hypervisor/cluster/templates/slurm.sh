#!/bin/sh
#SBATCH --job-name=hypervisor
#SBATCH --nodes=@HOSTS@
#SBATCH --ntasks-per-node=1
#SBATCH --mem=@MEGABYTES@
#SBATCH --signal=TERM@600
#SBATCH --requeue
# One supervisor per node. The store's URL comes from a file that only you can read:
#   printf 'postgresql://…' > ~/.config/hypervisor/store; chmod 600 ~/.config/hypervisor/store
set -eu
HYPERVISOR_STORE=$(cat "$HOME/.config/hypervisor/store")
HV_LAUNCHER=slurm:$SLURM_JOB_ID
export HYPERVISOR_STORE HV_LAUNCHER
exec srun --kill-on-bad-exit=0 hv supervise
