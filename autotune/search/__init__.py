"""What to try next: the plan, the memory model, the sampler, stopping, and the choice of finalists."""
