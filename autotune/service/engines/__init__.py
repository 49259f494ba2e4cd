"""Starts of workers by engines that own machines: Ray and Slurm."""
