"""Records and their batches: Kafka's layout, compression, producers' sequences, and the frame that carries batches."""
