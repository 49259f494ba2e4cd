"""The door of the service: tokens, hosts, origins, sizes, rates, and the audit log.

`door.py` has the order of the checks.
"""
