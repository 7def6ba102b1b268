"""The model of a history: its operations, and for each partition what clients saw at each offset."""
