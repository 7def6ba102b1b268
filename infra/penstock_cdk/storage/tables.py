"""The three DynamoDB tables: topics, the log, consumer groups. docs/reference/data-model.md has their items."""

from collections.abc import Iterator, Sequence
from typing import Any

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.settings import StageSettings
from penstock_core.storage import keys
from penstock_core.storage.head_updates import READER_ATTRIBUTES, WAITER_ATTRIBUTES
from penstock_core.storage.table_declarations import GROUPS, LOG, PARTITION_KEY, SORT_KEY, TOPICS, TableDeclaration
from penstock_core.storage.topic_item import LAYOUT_ATTRIBUTES, RAISE_ATTRIBUTES

_WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem"})
_KEYS_THAT_NO_NAME_EQUALS = "*#*"  # names of topics and groups have no `#`
_PK, _ATTRIBUTES = "dynamodb:LeadingKeys", "dynamodb:Attributes"


class Tables(Construct):
    """Tables with string keys `pk` and `sk`, billed per request, restorable to any second of the last 35 days."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        restored = settings.restored_tables
        if restored is None:
            self.topics: dynamodb.ITable = self._table("Topics", TOPICS)
            self.log: dynamodb.ITable = self._table("Log", LOG, warm_writes=settings.warm_log_writes)
            self.groups: dynamodb.ITable = self._table("Groups", GROUPS)
        else:
            self.topics = self._restored("Topics", restored.topics)
            self.log = self._restored("Log", restored.log, stream=restored.log_stream)
            self.groups = self._restored("Groups", restored.groups)

    def statements(
        self, *, topics: Sequence[str], log: Sequence[str], groups: Sequence[str]
    ) -> Iterator[iam.PolicyStatement]:
        """Allows DynamoDB actions, named without the prefix `dynamodb:`, on each table.

        Of the topics table, it allows to write topics alone: rules, the trail and zone states have keys with a `#`. Of
        the groups table, it allows groups and their register alone. So no function that handles records changes a rule
        or a quota, and no function that has no work with subscriptions reads the secret of one.
        """
        writes = [action for action in topics if action in _WRITES]
        reads = [action for action in topics if action not in _WRITES]
        for table, actions in ((self.topics, reads), (self.log, log)):
            if actions:
                yield self._statement(table, actions)
        if writes:
            yield self._statement(self.topics, writes, unlike=_KEYS_THAT_NO_NAME_EQUALS)
        if groups:
            yield self._statement(self.groups, groups, unlike=_KEYS_THAT_NO_NAME_EQUALS)
            yield self._statement(self.groups, groups, keys.GROUPS)

    def waiters_statement(self) -> iam.PolicyStatement:
        """Allows to set a head's waiter, and no other attribute of the log that a reader could harm.

        The condition covers every attribute that an update names, in its condition too. An update of `next_offset` or
        of `under_replicated` alone would be allowed by it. A policy cannot tell one from the other.
        """
        return self._statement(self.log, ["UpdateItem"], attributes=WAITER_ATTRIBUTES)

    def readers_statement(self) -> iam.PolicyStatement:
        """Allows to tell retention of a reader's new place, and to change nothing else of a head that matters."""
        return self._statement(self.log, ["UpdateItem"], attributes=READER_ATTRIBUTES)

    def inline_sweep_statement(self) -> iam.PolicyStatement:
        """Allows to delete the segments that are items of the log table, and no other item of it."""
        return self._statement(self.log, ["BatchWriteItem"], f"{keys.INLINE_PREFIX}*")

    def layouts_statement(self) -> iam.PolicyStatement:
        """Allows to end a change of a topic's partitions, and to change no setting of it."""
        return self._statement(
            self.topics, ["UpdateItem"], unlike=_KEYS_THAT_NO_NAME_EQUALS, attributes=LAYOUT_ATTRIBUTES
        )

    def raises_statement(self) -> iam.PolicyStatement:
        """Allows to remove the note of a raised retention, and to change no setting of a topic."""
        return self._statement(
            self.topics, ["UpdateItem"], unlike=_KEYS_THAT_NO_NAME_EQUALS, attributes=RAISE_ATTRIBUTES
        )

    def shares_statement(self, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the items of share groups, and on no other item of the groups table."""
        return self._statement(self.groups, actions, keys.SHARE_GROUPS, f"{keys.SHARE_PREFIX}*")

    def subscriptions_statement(self, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the items of subscriptions, and on no other item of the groups table."""
        own = (keys.SUBSCRIPTIONS, f"{keys.SUBSCRIPTIONS_OF}*", keys.ORPHANED_STATES, f"{keys.PUSH_PREFIX}*")
        return self._statement(self.groups, actions, *own)

    def schedules_statement(self, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the schedules, and on no other item of the groups table."""
        return self._statement(self.groups, actions, keys.SCHEDULES)

    def subscriptions_count_statement(self) -> iam.PolicyStatement:
        """Allows to count the subscriptions, and to read none of them, since they hold secrets of endpoints."""
        statement = self._statement(self.groups, ["Query"], keys.SUBSCRIPTIONS)
        if self._settings.tells_item_keys:
            statement.add_condition("StringEquals", {"dynamodb:Select": "COUNT"})
        return statement

    def subscription_notes_statement(self) -> iam.PolicyStatement:
        """Allows to find the subscriptions of a topic, and no other item of the groups table."""
        return self._statement(self.groups, ["Query"], f"{keys.SUBSCRIPTIONS_OF}*")

    def spending_statements(self) -> Iterator[iam.PolicyStatement]:
        """Allows to read the quotas, and to charge their buckets, and no other item of the groups table."""
        yield self.quotas_statement("Query")
        yield self._statement(self.groups, ["UpdateItem", "PutItem"], f"{keys.BUCKET}#*")

    def claims_statement(self, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the claims of principals, and on no other item of the groups table."""
        return self._statement(self.groups, actions, f"{keys.CLAIMS}#*")

    def quotas_statement(self, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the quotas, and on no other item of the groups table."""
        return self._statement(self.groups, actions, keys.QUOTAS)

    def zone_states_statement(self) -> iam.PolicyStatement:
        """Allows to write the states of the zones, and no other item of the topics table."""
        return self._statement(self.topics, ["PutItem", "UpdateItem"], keys.ZONES)

    def acls_statement(self) -> iam.PolicyStatement:
        """Allows to write the access rules, and no other item of the topics table."""
        return self._statement(self.topics, ["PutItem", "UpdateItem"], keys.ACLS)

    def cursors_statement(self) -> iam.PolicyStatement:
        """Allows to write and delete the cursors of scheduled jobs, and no other item of the topics table."""
        return self._statement(self.topics, ["PutItem", "DeleteItem"], keys.CURSORS)

    def index_age_statement(self) -> iam.PolicyStatement:
        """Allows to note the age of the index. It is among the cursors, and a policy cannot tell them apart."""
        return self._statement(self.topics, ["PutItem"], keys.CURSORS)

    def audit_statement(self, *actions: str) -> iam.PolicyStatement:
        """Allows the actions on the notes of changes, and on no other item of the topics table."""
        return self._statement(self.topics, actions, keys.AUDIT)

    def deletions_statement(self) -> iam.PolicyStatement:
        """Allows to write and delete the notes of deleted topics, and no other item of the topics table."""
        return self._statement(self.topics, ["PutItem", "UpdateItem", "DeleteItem"], keys.DELETED)

    def _statement(
        self,
        table: dynamodb.ITable,
        actions: Sequence[str],
        *like: str,
        unlike: str | None = None,
        attributes: Sequence[str] = (),
    ) -> iam.PolicyStatement:
        """Allows actions on the items whose `pk` is like one of these patterns, and not like another one.

        Source: DynamoDB guide, "Using IAM policy conditions". `ForAllValues` holds where a request tells no
        key, so `Null` asks that it does. The emulator tells IAM no keys.
        """
        found: dict[str, dict[str, Any]] = {}
        if like:
            found["ForAllValues:StringLike"] = {_PK: list(like)}
        if unlike is not None:
            found["ForAllValues:StringNotLike"] = {_PK: [unlike]}
        if attributes:
            found["ForAllValues:StringEquals"] = {_ATTRIBUTES: list(attributes)}
        told = [name for name, is_asked in ((_PK, like or unlike), (_ATTRIBUTES, attributes)) if is_asked]
        if told and self._settings.tells_item_keys:
            found["Null"] = dict.fromkeys(told, "false")
        return iam.PolicyStatement(
            actions=[f"dynamodb:{action}" for action in actions], resources=[table.table_arn], conditions=found or None
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

    def _table(self, name: str, declaration: TableDeclaration, *, warm_writes: int | None = None) -> dynamodb.Table:
        keeps_data = self._settings.keeps_data_on_delete
        return dynamodb.Table(
            self,
            name,
            partition_key=dynamodb.Attribute(name=PARTITION_KEY, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=SORT_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.DEFAULT,  # by a key that AWS owns: KMS bills no calls for it
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            # an old image tells who waited (docs/adr/0042)
            stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES if declaration.is_streamed else None,
            warm_throughput=None
            if warm_writes is None
            else dynamodb.WarmThroughput(write_units_per_second=warm_writes),
            time_to_live_attribute=declaration.ttl_attribute,
            deletion_protection=keeps_data,
            removal_policy=RemovalPolicy.RETAIN if keeps_data else RemovalPolicy.DESTROY,
        )
