"""Values that the tuner, the supervisor, the fork server and the trial exchange."""
