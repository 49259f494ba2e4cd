"""The space of settings for a search, its encoding, and refusals by name. Pure."""
