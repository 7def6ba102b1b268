"""Penstock on a laptop: the CDK app of this checkout, deployed to MiniStack, an emulator of AWS."""
