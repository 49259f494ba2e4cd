"""Attaches to forward, backward and optimizer step: number formats, accumulation, losses, schedulers."""
