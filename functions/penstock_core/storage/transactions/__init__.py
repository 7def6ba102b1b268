"""The items of transactional producers, and of what they have staged."""
