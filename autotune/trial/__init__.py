"""Runs inside the user's process: applies settings at torch's seams, measures, and writes a report at the end."""
