"""Observes the training loop of a diagnosis after the window of its trial; loaded by diagnoses alone."""
