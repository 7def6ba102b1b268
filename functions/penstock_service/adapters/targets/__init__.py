"""The targets of subscriptions outside of Penstock. The port `Targets` documents what they share."""
