"""Advice on a diagnosis, with the expected gain. Pure: every rule is a function of the figures alone."""
