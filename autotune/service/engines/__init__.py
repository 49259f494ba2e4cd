"""Starts of workers by engines that own machines: Ray, Slurm, Kubernetes and Compose."""
