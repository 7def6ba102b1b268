"""A model of share groups on AWS, in simulated time: `python -m bench.share_model`."""
