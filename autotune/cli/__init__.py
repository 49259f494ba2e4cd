"""The command line, with a file per verb. A verb imports its rooms when it runs, because `--help` must be quick."""
