"""The prices of AWS, in the one table of Penstock. Every figure in dollars is computed from it.

List prices of `REGION` on `DATE`, in the first tier, without free tiers, discounts and taxes. `penstock doctor`,
`penstock cost`, the benches, the test of the bill and the docs read this table. To change a price, change its line here
and nowhere else, and set `DATE`.
"""

from dataclasses import dataclass

DATE = "2026-11-22"
REGION = "us-east-1"

MILLION = 1_000_000
GB = 1_000_000_000
HOURS_PER_MONTH = 730
DAYS_PER_MONTH = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """`usd` dollars for each `per` units. `source` is the page that states it.

    `is_verified` is False for a figure from memory or from a third party, which was not seen on that page.
    """

    usd: float
    per: int
    unit: str
    source: str
    is_verified: bool = True

    def of(self, quantity: float) -> float:
        """The dollars of `quantity` units."""
        return self.usd * quantity / self.per


_API = "aws.amazon.com/api-gateway/pricing"
_APPSYNC = "aws.amazon.com/appsync/pricing"
_CLOUDWATCH = "aws.amazon.com/cloudwatch/pricing"
_DYNAMODB = "aws.amazon.com/dynamodb/pricing/on-demand"
_EC2 = "aws.amazon.com/ec2/pricing/on-demand"
_EVENTS = "aws.amazon.com/eventbridge/pricing"
_KMS = "aws.amazon.com/kms/pricing"
_KINESIS = "aws.amazon.com/kinesis/data-streams/pricing"
_LAMBDA = "aws.amazon.com/lambda/pricing"
_MSK = "aws.amazon.com/msk/pricing"
_S3 = "aws.amazon.com/s3/pricing"
_SQS = "aws.amazon.com/sqs/pricing"
_VPC = "aws.amazon.com/vpc/pricing"
_WARPSTREAM = "warpstream.com/pricing"
_XRAY = "aws.amazon.com/xray/pricing"

# API Gateway, HTTP API. A request, its answer with it, counts once for each 512 KB that it begins.
API_REQUESTS = Price(usd=1.00, per=MILLION, unit="request of 512 KB", source=_API)
API_REQUEST_BYTES = 512 * 1024
# API Gateway, WebSocket API. A message counts once for each 32 KB.
WEBSOCKET_MESSAGES = Price(usd=1.00, per=MILLION, unit="message of 32 KB", source=_API)
WEBSOCKET_MINUTES = Price(usd=0.25, per=MILLION, unit="minute of a connection", source=_API)

# AppSync Events. Publishing, delivering, connecting and subscribing are operations, once for each 5 KB.
APPSYNC_OPERATIONS = Price(usd=1.00, per=MILLION, unit="operation of 5 KB", source=_APPSYNC)
APPSYNC_MINUTES = Price(usd=0.08, per=MILLION, unit="minute of a connection", source=_APPSYNC)

# Lambda on arm64. The initialisation of an instance is billed as its time is.
LAMBDA_REQUESTS = Price(usd=0.20, per=MILLION, unit="request", source=_LAMBDA)
LAMBDA_GB_SECONDS = Price(usd=13.3334, per=MILLION, unit="GB-second", source=_LAMBDA)
PROVISIONED_GB_SECONDS = Price(usd=3.3334, per=MILLION, unit="GB-second kept", source=_LAMBDA, is_verified=False)
SNAPSTART_CACHE_GB_SECONDS = Price(usd=1.5046, per=MILLION, unit="GB-second", source=_LAMBDA)
SNAPSTART_RESTORE_GB = Price(usd=140.0, per=MILLION, unit="GB restored", source=_LAMBDA)

# DynamoDB on demand. A write unit is 1 KB of an item, a read unit 4 KB of one consistent read. Transactions take two
# units for one. Lambda reads streams at no charge.
WRITE_UNITS = Price(usd=0.625, per=MILLION, unit="write unit", source=_DYNAMODB)
READ_UNITS = Price(usd=0.125, per=MILLION, unit="read unit", source=_DYNAMODB)
TABLE_GB_MONTHS = Price(usd=0.25, per=1, unit="GB-month", source=_DYNAMODB)
BACKUP_GB_MONTHS = Price(usd=0.20, per=1, unit="GB-month of point-in-time recovery", source=_DYNAMODB)
RESTORED_BYTES = Price(usd=0.15, per=GB, unit="byte of a restored table", source=_DYNAMODB, is_verified=False)

# S3 Standard. LIST, COPY and POST cost what PUT costs. DELETE is free.
S3_PUTS = Price(usd=0.005, per=1_000, unit="PUT, COPY, POST or LIST", source=_S3)
S3_GETS = Price(usd=0.0004, per=1_000, unit="GET or HEAD", source=_S3)
S3_GB_MONTHS = Price(usd=0.023, per=1, unit="GB-month", source=_S3)

# S3 Express One Zone. Uploads and retrievals cost for each byte. CreateSession counts as a GET.
EXPRESS_PUTS = Price(usd=0.00113, per=1_000, unit="PUT, COPY, POST or LIST", source=_S3)
EXPRESS_GETS = Price(usd=0.00003, per=1_000, unit="GET, HEAD or session", source=_S3)
EXPRESS_UPLOADED_BYTES = Price(usd=0.0032, per=GB, unit="byte", source=_S3)
EXPRESS_RETRIEVED_BYTES = Price(usd=0.0006, per=GB, unit="byte", source=_S3)
EXPRESS_GB_MONTHS = Price(usd=0.11, per=1, unit="GB-month", source=_S3)

# SQS. A receive that finds nothing costs too.
SQS_REQUESTS = Price(usd=0.40, per=MILLION, unit="request of 64 KB", source=_SQS)
SQS_FIFO_REQUESTS = Price(usd=0.50, per=MILLION, unit="request of 64 KB", source=_SQS)

# Kinesis Data Streams on demand, to compare. A record counts in whole KB. The first day of retention is free.
KINESIS_BYTES_IN = Price(usd=0.08, per=GB, unit="byte", source=_KINESIS)
KINESIS_BYTES_OUT = Price(usd=0.04, per=GB, unit="byte", source=_KINESIS)
KINESIS_STREAM_HOURS = Price(usd=0.04, per=1, unit="hour of a stream", source=_KINESIS)
KINESIS_WEEK_GB_MONTHS = Price(usd=0.10, per=1, unit="GB-month from day 2 to 7", source=_KINESIS, is_verified=False)
KINESIS_LONG_GB_MONTHS = Price(usd=0.023, per=1, unit="GB-month from day 8", source=_KINESIS, is_verified=False)
# The same in the mode Advantage, which has no hours of streams and a minimum for each account and region.
KINESIS_ADVANTAGE_BYTES_IN = Price(usd=0.032, per=GB, unit="byte", source=_KINESIS)
KINESIS_ADVANTAGE_BYTES_OUT = Price(usd=0.016, per=GB, unit="byte", source=_KINESIS)
KINESIS_ADVANTAGE_GB_MONTHS = Price(usd=0.023, per=1, unit="GB-month from day 2", source=_KINESIS, is_verified=False)
KINESIS_ADVANTAGE_MINIMUM_DAYS = Price(usd=100.0, per=1, unit="day, at least", source=_KINESIS)

# Kafka, to compare. MSK Express has broker hours by size; a broker here is an express.m7g.large.
MSK_SERVERLESS_HOURS = Price(usd=0.75, per=1, unit="hour of a cluster", source=_MSK, is_verified=False)
MSK_SERVERLESS_PARTITION_HOURS = Price(usd=0.0015, per=1, unit="hour of a partition", source=_MSK, is_verified=False)
MSK_SERVERLESS_BYTES_IN = Price(usd=0.10, per=GB, unit="byte", source=_MSK, is_verified=False)
MSK_SERVERLESS_BYTES_OUT = Price(usd=0.05, per=GB, unit="byte", source=_MSK, is_verified=False)
MSK_SERVERLESS_GB_MONTHS = Price(usd=0.10, per=1, unit="GB-month", source=_MSK, is_verified=False)
MSK_EXPRESS_BROKER_HOURS = Price(usd=0.408, per=1, unit="hour of a broker", source=_MSK, is_verified=False)
MSK_EXPRESS_BYTES_IN = Price(usd=0.01, per=GB, unit="byte", source=_MSK, is_verified=False)
MSK_EXPRESS_GB_MONTHS = Price(usd=0.10, per=1, unit="GB-month", source=_MSK, is_verified=False)
# WarpStream in your own account, tier Dev, to compare. Its agents and its S3 come on your bill of AWS.
WARPSTREAM_CLUSTER_HOURS = Price(usd=0.138, per=1, unit="hour of a cluster", source=_WARPSTREAM, is_verified=False)
WARPSTREAM_BYTES_IN = Price(usd=0.01, per=1024**3, unit="byte, not compressed", source=_WARPSTREAM, is_verified=False)
WARPSTREAM_GIB_MONTHS = Price(usd=0.01, per=1, unit="GiB-month", source=_WARPSTREAM, is_verified=False)
AGENT_HOURS = Price(usd=0.0816, per=1, unit="hour of an m7g.large", source=_EC2, is_verified=False)

# CloudWatch. A metric counts once for each set of dimensions, by the hours in which it is published.
ALARMS = Price(usd=0.10, per=1, unit="metric of an alarm and month", source=_CLOUDWATCH)
FAST_ALARMS = Price(usd=0.30, per=1, unit="metric of an alarm with a period below 60 s, and month", source=_CLOUDWATCH)
COMPOSITE_ALARMS = Price(usd=0.50, per=1, unit="composite alarm and month", source=_CLOUDWATCH)
METRICS = Price(usd=0.30, per=1, unit="custom metric and month", source=_CLOUDWATCH)
DASHBOARDS = Price(usd=3.00, per=1, unit="dashboard and month", source=_CLOUDWATCH)
CLOUDWATCH_REQUESTS = Price(usd=0.01, per=1_000, unit="request", source=_CLOUDWATCH)
LOGGED_BYTES = Price(usd=0.50, per=GB, unit="byte", source=_CLOUDWATCH)
LOG_GB_MONTHS = Price(usd=0.03, per=1, unit="GB-month", source=_CLOUDWATCH)
TRACES = Price(usd=5.00, per=MILLION, unit="trace", source=_XRAY)

# EventBridge. A rule with a schedule on the default bus is free. Scheduler is not.
SCHEDULER_INVOCATIONS = Price(usd=1.00, per=MILLION, unit="invocation", source=_EVENTS)
CUSTOM_EVENTS = Price(usd=1.00, per=MILLION, unit="event of 64 KB", source=_EVENTS)

# Keys that AWS owns cost nothing.
KMS_REQUESTS = Price(usd=0.03, per=10_000, unit="request", source=_KMS)
KMS_KEYS = Price(usd=1.00, per=1, unit="key of yours and month", source=_KMS)

# Traffic. A gateway endpoint to S3 or DynamoDB is free.
INTERNET_BYTES_OUT = Price(usd=0.09, per=GB, unit="byte", source=_EC2)
REGION_BYTES_OUT = Price(usd=0.02, per=GB, unit="byte to another region", source=_EC2, is_verified=False)
NAT_BYTES = Price(usd=0.045, per=GB, unit="byte", source=_VPC)
