"""Everything that outlives the tuner: our tables beside Optuna's in one database, leases, and what may be stored."""
