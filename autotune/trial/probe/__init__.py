"""What the probe learns of a script: loaders, arguments, imports, threads, and hazards."""
