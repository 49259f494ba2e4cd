"""What the user asks of a search: from flags, environment and study file to one SearchSpec. Pure, but for reading."""
