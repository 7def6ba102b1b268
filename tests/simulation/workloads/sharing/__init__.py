"""Share groups: their workers, transactions that accept, dead letters and their way back, workers that wait."""
