"""Everything kept after the tuner's end: our tables beside Optuna's in one database, leases, and masked secrets."""
