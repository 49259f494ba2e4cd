"""Runs a command whose writes vanish and whose processes cannot escape."""
