"""The checks: each module looks for one kind of anomaly in the model of a history."""
