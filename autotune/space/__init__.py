"""What may be tried: the space, its encoding, and what is refused by name. Pure."""
