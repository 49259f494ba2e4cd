"""Speaks to a server: submits jobs, follows events, and reads studies. Standard library only."""
