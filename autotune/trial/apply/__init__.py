"""Settings put in force in the script's process, and read back from the objects themselves."""
