"""The three DynamoDB tables: topics, the log, consumer groups. docs/reference/data-model.md has their items."""

from collections.abc import Iterator, Sequence

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.settings import StageSettings
from penstock_core.storage import keys
from penstock_core.storage.head_updates import WAITER_ATTRIBUTES
from penstock_core.storage.topic_item import LAYOUT_ATTRIBUTES

TTL_ATTRIBUTE = "expires_at_s"


class Tables(Construct):
    """Tables with string keys `pk` and `sk`, billed per request, restorable to any second of the last 35 days."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        restored = settings.restored_tables
        if restored is None:
            self.topics: dynamodb.ITable = self._table("Topics")
            self.log: dynamodb.ITable = self._table(
                "Log",
                stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES,  # an old image tells who waited (docs/adr/0042)
                time_to_live_attribute=TTL_ATTRIBUTE,
                warm_writes=settings.warm_log_writes,
            )
            self.groups: dynamodb.ITable = self._table("Groups", time_to_live_attribute=TTL_ATTRIBUTE)
        else:
            self.topics = self._restored("Topics", restored.topics)
            self.log = self._restored("Log", restored.log, stream=restored.log_stream)
            self.groups = self._restored("Groups", restored.groups)

    def statements(
        self, *, topics: Sequence[str], log: Sequence[str], groups: Sequence[str]
    ) -> list[iam.PolicyStatement]:
        """Allows DynamoDB actions, named without the prefix `dynamodb:`, on each table."""
        return [
            iam.PolicyStatement(actions=[f"dynamodb:{action}" for action in actions], resources=[table.table_arn])
            for table, actions in ((self.topics, topics), (self.log, log), (self.groups, groups))
            if actions
        ]

    def waiters_statement(self) -> iam.PolicyStatement:
        """Allows to set a head's waiter, and no other attribute of the log that a reader could harm.

        The condition covers every attribute that an update names, in its condition too. An update of `next_offset` or
        of `under_replicated` alone would be allowed by it. A policy cannot tell one from the other.
        """
        return iam.PolicyStatement(
            actions=["dynamodb:UpdateItem"],
            resources=[self.log.table_arn],
            conditions={"ForAllValues:StringEquals": {"dynamodb:Attributes": list(WAITER_ATTRIBUTES)}},
        )

    def inline_sweep_statement(self) -> iam.PolicyStatement:
        """Allows to delete the segments that are items of the log table, and no other item of it."""
        return iam.PolicyStatement(
            actions=["dynamodb:BatchWriteItem"],
            resources=[self.log.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{keys.INLINE_PREFIX}*"]}},
        )

    def layouts_statement(self) -> iam.PolicyStatement:
        """Allows to end a change of a topic's partitions, and to change no setting of it."""
        return iam.PolicyStatement(
            actions=["dynamodb:UpdateItem"],
            resources=[self.topics.table_arn],
            conditions={"ForAllValues:StringEquals": {"dynamodb:Attributes": list(LAYOUT_ATTRIBUTES)}},
        )

    def shares_statement(self, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the items of share groups, and on no other item of the groups table."""
        return iam.PolicyStatement(
            actions=[f"dynamodb:{action}" for action in actions],
            resources=[self.groups.table_arn],
            conditions={
                "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [keys.SHARE_GROUPS, f"{keys.SHARE_PREFIX}*"]}
            },
        )

    def subscriptions_statement(self, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the items of subscriptions, and on no other item of the groups table."""
        own = [keys.SUBSCRIPTIONS, f"{keys.SUBSCRIPTIONS_OF}*", keys.ORPHANED_STATES, f"{keys.PUSH_PREFIX}*"]
        return iam.PolicyStatement(
            actions=[f"dynamodb:{action}" for action in actions],
            resources=[self.groups.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": own}},
        )

    def subscription_notes_statement(self) -> iam.PolicyStatement:
        """Allows to find the subscriptions of a topic, and no other item of the groups table."""
        return iam.PolicyStatement(
            actions=["dynamodb:Query"],
            resources=[self.groups.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{keys.SUBSCRIPTIONS_OF}*"]}},
        )

    def spending_statements(self) -> Iterator[iam.PolicyStatement]:
        """Allows to read the quotas, and to charge their buckets, and no other item of the groups table."""
        yield self.quotas_statement("Query")
        yield iam.PolicyStatement(
            actions=["dynamodb:UpdateItem", "dynamodb:PutItem"],
            resources=[self.groups.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{keys.BUCKET}#*"]}},
        )

    def claims_statements(self) -> Iterator[iam.PolicyStatement]:
        """Allows to read the quotas, and to change the claims that count what principals create."""
        yield self.quotas_statement("Query")
        yield iam.PolicyStatement(
            actions=["dynamodb:Query", "dynamodb:PutItem", "dynamodb:DeleteItem"],
            resources=[self.groups.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{keys.CLAIMS}#*"]}},
        )

    def quotas_statement(self, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the quotas, and on no other item of the groups table."""
        return iam.PolicyStatement(
            actions=[f"dynamodb:{action}" for action in actions],
            resources=[self.groups.table_arn],
            conditions={"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [keys.QUOTAS]}},
        )

    def zone_states_statement(self) -> iam.PolicyStatement:
        """Allows to write the states of the zones, and no other item of the topics table."""
        return self._topics_items_statement(keys.ZONES, "PutItem", "UpdateItem")

    def acls_statement(self) -> iam.PolicyStatement:
        """Allows to write the access rules, and no other item of the topics table."""
        return self._topics_items_statement(keys.ACLS, "PutItem", "UpdateItem")

    def cursors_statement(self) -> iam.PolicyStatement:
        """Allows to write and delete the cursors of scheduled jobs, and no other item of the topics table."""
        return self._topics_items_statement(keys.CURSORS, "PutItem", "DeleteItem")

    def audit_statement(self, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the notes of changes, and on no other item of the topics table."""
        return self._topics_items_statement(keys.AUDIT, *actions)

    def deletions_statement(self) -> iam.PolicyStatement:
        """Allows to write and delete the notes of deleted topics, and no other item of the topics table."""
        return self._topics_items_statement(keys.DELETED, "PutItem", "UpdateItem", "DeleteItem")

    def _topics_items_statement(self, pk: str, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the items with that `pk` (DynamoDB guide, "Using IAM policy conditions")."""
        return iam.PolicyStatement(
            actions=[f"dynamodb:{action}" for action in actions],
            resources=[self.topics.table_arn],
            conditions={"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [pk]}},
        )

    def _restored(self, construct_id: str, name: str, stream: str | None = None) -> dynamodb.ITable:
        """Refers to a table that DynamoDB restored. The stack neither changes nor deletes it."""
        table_arn = Stack.of(self).format_arn(service="dynamodb", resource="table", resource_name=name)
        return dynamodb.Table.from_table_attributes(
            self,
            construct_id,
            table_arn=table_arn,
            table_stream_arn=None if stream is None else f"{table_arn}/stream/{stream}",
        )

    def _table(
        self,
        name: str,
        *,
        stream: dynamodb.StreamViewType | None = None,
        time_to_live_attribute: str | None = None,
        warm_writes: int | None = None,
    ) -> dynamodb.Table:
        keeps_data = self._settings.keeps_data_on_delete
        return dynamodb.Table(
            self,
            name,
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.DEFAULT,  # by a key that AWS owns: KMS bills no calls for it
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            stream=stream,
            warm_throughput=None
            if warm_writes is None
            else dynamodb.WarmThroughput(write_units_per_second=warm_writes),
            time_to_live_attribute=time_to_live_attribute,
            deletion_protection=keeps_data,
            removal_policy=RemovalPolicy.RETAIN if keeps_data else RemovalPolicy.DESTROY,
        )
