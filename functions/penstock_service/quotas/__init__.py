"""Quotas: admit what a principal or topic may still spend, refuse the rest before anything is stored."""
