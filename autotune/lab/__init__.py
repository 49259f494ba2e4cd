"""Recorded grids, replays and searches of plain functions: for people who compare samplers."""
