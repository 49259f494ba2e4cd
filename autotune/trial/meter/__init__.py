"""Steps, blocks and phases of a trial, and the memory that the process holds."""
