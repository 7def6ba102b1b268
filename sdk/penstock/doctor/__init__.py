"""What `penstock doctor` checks, and what it found. docs/adr/0033 says why it asks what it asks."""
