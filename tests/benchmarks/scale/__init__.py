"""How long verbs take on a study with thousands of trials: `python -m tests.benchmarks.scale`."""
