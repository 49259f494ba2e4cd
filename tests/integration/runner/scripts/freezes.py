"""Freezes its heap before it imports what it trains with."""

import gc

gc.freeze()

import prepares  # noqa: E402

prepares.main()
