"""What the reports of a trial mean: outcome, throughput, settings in force, agreement of losses. Pure."""
