"""Measures several settings, one after another, in a single process of the script."""
