"""The time that a call to S3 takes, drawn from distributions.

Sources: AWS says single-digit milliseconds for S3 Express One Zone (userguide/s3-express-one-zone.html). Quickwit's
beta test gives about 5 ms for it, up to 30 ms for a GET from S3 Standard and 80 ms as its common tail
(quickwit.io/blog/s3-express-speculations). WarpStream publishes 105 and 169 ms at p50 and p99 for a produce on S3
Express, batching included (warpstream.com/blog/warpstream-s3-express-one-zone-benchmark-and-total-cost-of-ownership).
The lognormal shape and the share of slow calls, 2 in 100, are our assumption.
"""

import re
from math import exp, log
from random import Random

from localstack.like_aws.rules import Latency

_SLOW_SIGMA = 0.2


def s3_latency_ms(settings: Latency, chance: Random, *, bucket: str, is_put: bool) -> float:
    """The milliseconds of one call to the bucket."""
    is_express = re.search(settings.express_buckets, bucket) is not None
    if chance.random() < settings.slow_share:
        slow_ms = settings.express_slow_ms if is_express else settings.standard_slow_ms
        return _lognormal(chance, slow_ms, _SLOW_SIGMA)
    if is_express:
        median_ms = settings.express_put_ms if is_put else settings.express_get_ms
        return _lognormal(chance, median_ms, settings.express_sigma)
    median_ms = settings.standard_put_ms if is_put else settings.standard_get_ms
    return _lognormal(chance, median_ms, settings.standard_sigma)


def _lognormal(chance: Random, median: float, sigma: float) -> float:
    return exp(chance.normalvariate(log(median), sigma)) if median > 0 else 0.0
