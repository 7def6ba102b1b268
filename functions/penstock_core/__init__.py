"""Penstock's pure core: codecs, index, offsets, quorum, keys, errors, limits. No I/O, no clock, no chance."""
