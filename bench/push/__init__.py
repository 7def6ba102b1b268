"""Benches of push subscriptions: what a target sees while functions die, records fail, and nothing happens."""
