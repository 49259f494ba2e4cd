"""Writes the report file of a trial's process, and describes a failure."""
