"""What `trial.redirect` puts in place of the system's functions on paths. Standard library only."""
