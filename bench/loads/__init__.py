"""The work that benches measure: what they send, store, read and kill."""
