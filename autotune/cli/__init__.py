"""The command line: one file per verb. Verbs load what they need when they run, so that `--help` is quick."""
