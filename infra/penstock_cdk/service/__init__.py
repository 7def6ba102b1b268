"""The API and its functions."""
