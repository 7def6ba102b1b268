"""Epochs of transactional producers, and their open transactions."""
