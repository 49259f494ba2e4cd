"""Replacements of Python's path functions for systems without overlay mounts. Standard library only."""
