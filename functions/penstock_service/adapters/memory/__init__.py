"""Every port in memory, for tests and for `penstock.testing`."""
