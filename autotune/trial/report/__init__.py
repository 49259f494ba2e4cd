"""The one file that a process of a trial leaves behind, and how a failure is described in it."""
