"""Finds the training DataLoader, rebuilds it with other arguments, and gives the script its batches."""
