"""Subscriptions under attack: their targets, what happens to deliveries and operators' changes, and how they end."""
