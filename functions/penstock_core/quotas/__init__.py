"""Quotas: how much a principal or a topic may send and read in a second, and how instances share it out."""
