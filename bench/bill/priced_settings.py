"""The settings of a template that cost money beyond the calls that the bill captures.

AWS charges for settings as well as for calls: traces, detailed metrics, provisioned instances, logged data events. Each
property of a metered type is in `KNOWN`, or else it is refused here: nobody has said yet what it costs.
"""

from collections.abc import Mapping
from typing import Any

from bench.bill.metered_calls import Lines
from penstock import prices
from penstock.cost.estimate import key_requests

Resources = Mapping[str, Mapping[str, Any]]

# They cost nothing by themselves, or the captured calls have what they cost.
KNOWN: Mapping[str, str] = {
    "AWS::ApiGatewayV2::Api": "Description Name ProtocolType",
    "AWS::ApiGatewayV2::Stage": "AccessLogSettings ApiId AutoDeploy DefaultRouteSettings RouteSettings StageName",
    "AWS::AppSync::Api": "EventConfig Name",
    "AWS::AppSync::ChannelNamespace": "ApiId Name",
    "AWS::DynamoDB::Table": "AttributeDefinitions BillingMode DeletionProtectionEnabled KeySchema "
    "PointInTimeRecoverySpecification SSESpecification StreamSpecification TimeToLiveSpecification",
    "AWS::EMRServerless::Application": "Architecture AutoStartConfiguration AutoStopConfiguration MaximumCapacity "
    "MonitoringConfiguration Name ReleaseLabel RuntimeConfiguration Type",
    "AWS::Lambda::EventInvokeConfig": "FunctionName MaximumRetryAttempts Qualifier",
    "AWS::Lambda::EventSourceMapping": "BatchSize BisectBatchOnFunctionError DestinationConfig Enabled EventSourceArn "
    "FilterCriteria FunctionName FunctionResponseTypes MaximumBatchingWindowInSeconds MaximumRecordAgeInSeconds "
    "MaximumRetryAttempts ScalingConfig StartingPosition",
    "AWS::Lambda::Function": "Architectures Code Description Environment FunctionName Handler LoggingConfig MemorySize "
    "RecursiveLoop ReservedConcurrentExecutions Role Runtime Timeout TracingConfig",
    "AWS::Logs::LogGroup": "KmsKeyId LogGroupName RetentionInDays",
    "AWS::Logs::MetricFilter": "FilterPattern LogGroupName MetricTransformations",
    "AWS::S3::Bucket": "BucketEncryption LifecycleConfiguration OwnershipControls PublicAccessBlockConfiguration",
    "AWS::S3Express::DirectoryBucket": "BucketEncryption DataRedundancy LifecycleConfiguration LocationName",
    "AWS::SQS::Queue": "KmsDataKeyReusePeriodSeconds KmsMasterKeyId MessageRetentionPeriod RedrivePolicy "
    "SqsManagedSseEnabled VisibilityTimeout",
}
_STORES_BY_KEY = ("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::S3Express::DirectoryBucket", "AWS::SQS::Queue")


def request_extras(resources: Resources) -> Lines:
    """The dollars of a request that settings add to its captured calls, by line.

    Raises LookupError for a setting that nothing prices.
    """
    lines = Lines()
    for name, resource in resources.items():
        kind, properties = resource["Type"], resource.get("Properties", {})
        known = {*KNOWN.get(kind, "").split(), "Tags"}
        if unpriced := [each for each in properties if kind in KNOWN and each not in known]:
            raise LookupError(f"{name}: nothing tells what {unpriced[0]} costs: add it to priced_settings.py")
        for value in _unpriced_values(kind, properties):
            raise LookupError(f"{name}: nothing tells what {value} costs: add it to priced_settings.py")
        if properties.get("TracingConfig", {}).get("Mode") == "Active":
            # "1 request per second and 5 percent of additional requests": a quiet stage traces each request.
            lines["traces"] = prices.TRACES.of(1)
    return lines


def key_usd_max(resources: Resources) -> float:
    """The dollars of a month for requests to KMS, at most: each role that uses a key does so without a pause."""
    stores = sum(each["Type"] in _STORES_BY_KEY and ":kms:" in str(each) for each in resources.values())
    callers = sum(each["Type"] == "AWS::IAM::Role" and "kms:Decrypt" in str(each) for each in resources.values())
    return prices.KMS_REQUESTS.of(key_requests(callers, stores))


def _unpriced_values(kind: str, properties: Mapping[str, Any]) -> list[str]:
    """Values of known properties that would cost."""
    found = ["KmsKeyArn"] if "KmsKeyArn" in str(properties) else []
    if kind == "AWS::ApiGatewayV2::Stage" and "'DetailedMetricsEnabled': True" in str(properties):
        found.append("DetailedMetricsEnabled")
    if kind == "AWS::Logs::MetricFilter":
        for each in properties["MetricTransformations"]:
            # A default value publishes the metric without end, and each dimension is a metric of its own.
            found += [key for key in ("DefaultValue", "Dimensions") if key in each]
    return found
