"""The loop: probe, trials, finals, config. The only room that knows runner, search, store and emit together."""
