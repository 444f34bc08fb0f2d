"""Results of scenarios: interleaved rounds, the record of a run, and the committed report."""
