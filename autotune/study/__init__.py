"""One study from probe to published result: probe, plan, trials, finals, publish."""
