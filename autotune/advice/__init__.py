"""What to do about a diagnosis, and what that would gain. Pure: every rule is a function of the figures alone."""
