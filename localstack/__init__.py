"""Penstock on a laptop: the emulator MiniStack as a local AWS, with the CDK app of this checkout deployed to it."""
