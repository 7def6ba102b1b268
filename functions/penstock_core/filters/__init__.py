"""Filters over record headers: the policy, the matcher that it is compiled to, and the Bloom filter of tags."""
