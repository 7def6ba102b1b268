"""What reads stored batches goes on behind those that hold too much, or cannot be decoded."""
