"""Epochs of transactional producers."""
