"""Measures the steps, blocks and phases of a trial, and the memory of the process."""
