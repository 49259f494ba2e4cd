"""Observes the training loop of a diagnosis after the window; loaded by diagnoses alone."""
