"""The JSON API, version 1: one router for each resource."""
