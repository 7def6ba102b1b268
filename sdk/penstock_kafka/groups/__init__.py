"""Groups of consumers, classic and of KIP-848, and their offsets."""
