"""Gives advice on a diagnosis with the expected gain; every rule is a pure function of the figures."""
