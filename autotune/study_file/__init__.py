"""Turns flags, environment and study file into a SearchSpec. Pure, except for reading files."""
