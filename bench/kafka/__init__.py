"""Benches of `penstock kafka`: librdkafka against the gateway, in front of the local stack and of a stand-in."""
