"""`autotune worker`: registers a machine, leases jobs, and runs each search in a child process."""
