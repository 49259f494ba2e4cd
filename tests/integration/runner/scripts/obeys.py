"""Trains, reports, ends."""

import pretend

print("trained")
pretend.report()
