"""The three DynamoDB tables: topics, the log's index, and consumer groups. What is in them: docs/data-model.md."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from infra.settings import StageSettings

TTL_ATTRIBUTE = "expires_at_s"


class Tables(Construct):
    """Tables with string keys `pk` and `sk`, paid per request, restorable to any second of the last 35 days."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self.topics = self._table("Topics")
        self.log = self._table("Log", stream=dynamodb.StreamViewType.NEW_IMAGE, time_to_live_attribute=TTL_ATTRIBUTE)
        self.groups = self._table("Groups", time_to_live_attribute=TTL_ATTRIBUTE)

    def _table(
        self,
        name: str,
        *,
        stream: dynamodb.StreamViewType | None = None,
        time_to_live_attribute: str | None = None,
    ) -> dynamodb.Table:
        keeps_data = self._settings.keeps_data_on_delete
        return dynamodb.Table(
            self,
            name,
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.AWS_MANAGED,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            stream=stream,
            time_to_live_attribute=time_to_live_attribute,
            deletion_protection=keeps_data,
            removal_policy=RemovalPolicy.RETAIN if keeps_data else RemovalPolicy.DESTROY,
        )
