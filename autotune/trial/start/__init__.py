"""The first code in a process of a trial: cold, forked from a server, or continued from a prelude."""
