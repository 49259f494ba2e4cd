"""Diagnosis of slow scripts: the run to look at, the findings, the advice."""
