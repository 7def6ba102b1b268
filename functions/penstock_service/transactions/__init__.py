"""The use cases of transactions: begin, stage, commit."""
