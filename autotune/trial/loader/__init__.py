"""Finds the training DataLoader, applies other arguments, and gives the script batches."""
