"""Starting, watching, ending and judging runs of the user's script: `start(job) -> handle`."""
