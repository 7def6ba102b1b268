"""The checks of `penstock doctor`, and their findings. docs/adr/0033 says why it asks what it asks."""
