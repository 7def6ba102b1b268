"""The construct of a whole Penstock. It composes constructs, and each construct defines one concern."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Unpack

from aws_cdk import Annotations, Arn, ArnFormat, CfnOutput, RemovalPolicy, Stack, Tags, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk.region_info import RegionInfo
from constructs import Construct

from penstock_cdk.alarms.alarms import Alarms
from penstock_cdk.alarms.compaction_metrics import CompactionMetrics
from penstock_cdk.alarms.dashboard import Dashboard
from penstock_cdk.alarms.failures import Failures
from penstock_cdk.alarms.job_run_alarms import JobRunAlarms
from penstock_cdk.alarms.zone_alarms import ZoneAlarms
from penstock_cdk.customer_key import encrypt
from penstock_cdk.declared.consumer_metrics import ConsumerMetrics
from penstock_cdk.declared.provision import Provision
from penstock_cdk.declared.rights import AccessRules, Quotas, Rights
from penstock_cdk.declared.schedule import UTC_ZONE, Schedule
from penstock_cdk.declared.share_group import Group, ShareGroup, plain_name
from penstock_cdk.declared.subscription import Subscription
from penstock_cdk.declared.targets import MirrorStage, Target, role_of_mirror
from penstock_cdk.declared.topic import Topic
from penstock_cdk.jobs.job_schedules import JobSchedules
from penstock_cdk.jobs.spark_jobs import SparkJobs
from penstock_cdk.properties import Properties, settings_of_properties
from penstock_cdk.service.api import Api
from penstock_cdk.service.client_policies import ClientPolicies
from penstock_cdk.service.direct import DirectCalls
from penstock_cdk.service.functions import Functions, rights_without_rules
from penstock_cdk.service.grants import grants_of
from penstock_cdk.service.measuring import Pins
from penstock_cdk.service.push import PushQueues, PushSource
from penstock_cdk.service.releases import CanaryDeployment, Releases
from penstock_cdk.service.repair import Repair, RepairQueues
from penstock_cdk.service.schedules import Schedules
from penstock_cdk.service.targets import TargetsRole
from penstock_cdk.service.timers import PROMOTE, TimerQueues, TimerSource
from penstock_cdk.service.token_api import TokenApi
from penstock_cdk.service.wake_ups import WakeUps
from penstock_cdk.settings import METADATA_KEY, UPKEEP, AclDefault, StageSettings, settings_text
from penstock_cdk.shipment import Shipment, built_shipment
from penstock_cdk.storage.archive import Archive
from penstock_cdk.storage.emptying import Emptying
from penstock_cdk.storage.stage_storage import StageStorage
from penstock_cdk.storage.tables import Tables
from penstock_cdk.storage.zones import Zones
from penstock_core.acls.rule import DENY
from penstock_core.log.inline import NO_ITEMS
from penstock_core.metrics.lag_memory import Consumer, ConsumerKind
from penstock_core.release import METADATA_KEY as RELEASE_KEY
from penstock_core.release import own_facts
from penstock_core.routes import ROUTE_BY_KEY
from penstock_core.stack_outputs import FUNCTIONS_OUTPUT, FUNCTIONS_VARIABLE, STORAGE_OUTPUTS

_ACCESS: Mapping[AclDefault, str] = {
    "deny": "refused without an access rule: penstock acls add PRINCIPAL write topic:NAME (docs/how-to/acls.md)",
    "allow": "allowed without an access rule: penstock acls add PRINCIPAL all '*' --deny (docs/how-to/acls.md)",
}
_PUSH_ROUTE = "POST /v1/mirrors/{name}/append"
_HIDDEN = "Default"  # the CDK leaves this id out of the names that it makes


class Penstock(Construct):
    """A whole Penstock: tables, zones, functions, API, jobs, alarms, and the policies of its clients.

    Put it into a stack of your own, next to the functions that use it. The properties are those of `Properties`, and
    `settings` names all others (settings.py). `shipment` holds the files that the functions and jobs consist of. By
    default it is built here: the first time takes a minute, and later times take a second.

    With the id `Default`, resources and outputs have the names that they have without a construct around them.

    Raises ValueError for properties that exclude each other or that the region cannot have, and RuntimeError if pip
    cannot install a dependency.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings | None = None,
        shipment: Shipment | None = None,
        **properties: Unpack[Properties],
    ) -> None:
        super().__init__(scope, construct_id)
        self._output_prefix = "" if construct_id == _HIDDEN else _letters_of(self)
        settings = self.settings = settings_of_properties(self, settings, properties)
        shipment = shipment or built_shipment(self, settings)
        self._mark(properties.get("kms_key"))
        storage = StageStorage(
            tables=Tables(self, "Tables", settings=settings),
            zones=Zones(self, "Zones", settings=settings),
            archive=Archive(self, "Archive", settings=settings),
        )
        timers = TimerQueues(self, "Timers", settings=settings)
        push = PushQueues(self, "Push", settings=settings)
        queues = self._repair_queues(settings, timers, push) if settings.repairs_zones else None
        wake_ups = WakeUps(self, "WakeUps", settings=settings)
        targets = self._targets = TargetsRole(self, "Targets", settings=settings)
        self._functions = Functions(
            self,
            "Functions",
            settings=settings,
            storage=storage,
            queues=queues,
            timers=timers,
            push=push,
            wake_ups=wake_ups,
            targets=targets,
            code=shipment.code,
        )
        functions = self._functions.by_name
        targets.trust([functions[name] for name, grants in grants_of(settings).items() if grants.reaches_targets])
        releases = Releases(self, "Releases", settings=settings, functions=functions)
        entries = releases.entries
        api = Api(self, "Api", settings=settings, functions=entries)
        self._token_api = self._api_of_tokens(settings, entries, api)
        Schedules(self, "Schedules", settings=settings, functions=entries)
        if queues is not None:
            Repair(self, "Repair", settings=settings, tables=storage.tables, queues=queues, functions=entries)
        TimerSource(self, "TimerSource", settings=settings, queues=timers, promote=entries[PROMOTE])
        PushSource(self, "PushSource", settings=settings, tables=storage.tables, queues=push, functions=entries)
        spark = SparkJobs(
            self,
            "Jobs",
            settings=settings,
            packages=shipment.packages,
            storage=storage,
            repairs=None if queues is None else queues.repairs,
            wake_ups=wake_ups,
        )
        self._empty_on_delete(settings, storage, spark)
        if spark.application is not None:
            JobSchedules(self, "JobSchedules", settings=settings, application=spark.application, jobs=spark.jobs)
        self._pins = self._measured(settings, functions)
        policies = self._client_policies(functions, releases, api, wake_ups)
        if settings.has_alarms:
            self._ring(settings, functions, releases, api, storage, spark)
        self._warn()
        self._api_outputs(api, policies)
        self._api, self._rights = api, self._rights_of(api, wake_ups)
        self._storage_outputs(settings, storage, queues)
        self._starting_outputs(timers, push, wake_ups)
        self._job_outputs(spark)

    def _mark(self, key: kms.IKey | None) -> None:
        """Gives each resource the tags and the key."""
        for name, value in {"penstock:stage": self.settings.name, **self.settings.tags}.items():
            Tags.of(self).add(name, value)
        encrypt(self, self.settings, key)

    def _repair_queues(self, settings: StageSettings, timers: TimerQueues, push: PushQueues) -> RepairQueues:
        return RepairQueues(self, "RepairQueues", settings=settings, dead=timers.dead, dead_stream=push.dead)

    def _api_of_tokens(
        self, settings: StageSettings, functions: Mapping[str, lambda_.IFunction], api: Api
    ) -> TokenApi | None:
        """The second API, where the stage takes tokens."""
        if settings.jwt is None:
            return None
        made = TokenApi(self, "TokenApi", settings=settings, jwt=settings.jwt, functions=functions, api=api)
        self._output("TokenApiUrl", made.url)
        self._output("TokenApiId", made.api_id)
        return made

    def _client_policies(
        self, functions: Mapping[str, lambda_.Function], releases: Releases, api: Api, wake_ups: WakeUps
    ) -> ClientPolicies:
        """The policies, and the aliases of direct calls where the stage takes them."""
        settings = self.settings
        self._direct: DirectCalls | None = None
        if settings.direct:
            self._direct = DirectCalls(self, "DirectCalls", settings=settings, functions=functions, releases=releases)
            self._output(FUNCTIONS_OUTPUT, self._direct.arn)
        return ClientPolicies(
            self, "ClientPolicies", settings=settings, api=api, wake_ups=wake_ups, direct=self._direct
        )

    def _rights_of(self, api: Api, wake_ups: WakeUps) -> Rights:
        return Rights(
            api=api,
            wake_ups=wake_ups,
            rules=self._access_rules(),
            direct=self._direct,
            denies=self.settings.acl_default == "deny",
        )

    def _measured(self, settings: StageSettings, functions: Mapping[str, lambda_.Function]) -> Pins:
        if settings.metrics.has_dashboard:
            Dashboard(self, "Dashboard", settings=settings)
        return Pins(self, settings=settings, measure=functions[UPKEEP])

    def _warn(self) -> None:
        settings = self.settings
        warn_of_region(self, settings.region)
        if settings.keeps_data_on_delete and settings.account_concurrency is None and not settings.reserved_concurrency:
            Annotations.of(self).add_warning_v2(
                "penstock:no-reserved-instances",
                "the size of your account is unknown, so this stage takes it for a new one: two readers wait at once, "
                "two deliveries run at once, and no function has instances for itself. Set account_concurrency, with "
                "app.py by `-c account_concurrency=N`, to what `aws lambda get-account-settings` says",
            )
        if settings.acl_default == "deny" and not settings.super_principals:
            Annotations.of(self).add_warning_v2(
                "penstock:no-super-principal",
                "this stage refuses what no access rule allows, and only grants of this app make rules: set "
                'super_principals. A stage that was open until now stays so by acl_default="allow"',
            )

    def topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        **config: Any,
    ) -> Topic:
        """Declares a topic. `config` has its settings, such as `retention_ms` (docs/reference/cdk.md).

        A deployment makes the topic, or takes over the one that is there. It alters settings in place, and adds
        partitions. The topic stays when the template loses it, unless `removal_policy` is DESTROY and the stack has
        made it. Raises ValueError with all mistakes.
        """
        if self.settings.topic_retention_ms is not None:
            config.setdefault("retention_ms", self.settings.topic_retention_ms)
        return Topic(
            _room(self, "Topics"),
            name=name,
            partitions=partitions,
            config=config,
            removal_policy=removal_policy,
            provision=self._provision,
            rights=self._rights,
            subscribe=self.subscription,
            schedule=self.schedule,
        )

    def group(self, name: str, *, alarm_age_ms: int | None = None) -> Group:
        """Names a group, whose first member makes it. Its `metrics` scale consumers (docs/how-to/scale-by-age.md).

        With `alarm_age_ms`, an alarm rings when the group is so far behind. Raises ValueError for a wrong name, and
        where the stage measures no consumers.
        """
        metrics = self._consumer_metrics(ConsumerKind.GROUP, name)
        return Group(_room(self, "Groups"), metrics=metrics, alarm_age_ms=alarm_age_ms)

    def share_group(
        self,
        name: str,
        topics: Sequence[Topic | str],
        *,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        alarm_age_ms: int | None = None,
        **config: Any,
    ) -> ShareGroup:
        """Declares a share group of topics. `config` has its settings, such as `lock_ms` and `dead_letter_topic`.

        A deployment treats it as it treats a topic. `alarm_age_ms` is as for `group`. Raises ValueError with all
        mistakes.
        """
        return ShareGroup(
            _room(self, "ShareGroups"),
            topics=topics,
            config=config,
            removal_policy=removal_policy,
            provision=self._provision,
            rights=self._rights,
            metrics=self._consumer_metrics(ConsumerKind.SHARE_GROUP, name),
            alarm_age_ms=alarm_age_ms,
        )

    def subscription(
        self,
        name: str,
        topics: Sequence[Topic | str],
        target: Target | MirrorStage,
        *,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        alarm_age_ms: int | None = None,
        **config: Any,
    ) -> Subscription:
        """Declares a subscription that delivers the topics to a function, a queue, a bus or another topic.

        The target lets the deliveries in by its own policy first. `config` has the settings, such as `filter` and
        `dead_letter_topic`. `alarm_age_ms` is as for `group`. Raises ValueError with all mistakes.
        """
        made = Subscription(
            _room(self, "Subscriptions"),
            topics=topics,
            target=target,
            config=config,
            removal_policy=removal_policy,
            provision=self._provision,
            role=self._targets,
            metrics=self._consumer_metrics(ConsumerKind.SUBSCRIPTION, name),
            alarm_age_ms=alarm_age_ms,
        )
        # Its creation switches on the pollers of deliveries, and the rule of the look. They must be there.
        made.node.add_dependency(self.node.find_child("PushSource"), self.node.find_child("Schedules"))
        return made

    def mirror_to(
        self,
        name: str,
        topics: Sequence[Topic | str],
        stage: "Penstock | MirrorStage",
        *,
        prefix: str = "",
        url: str | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        alarm_age_ms: int | None = None,
    ) -> Subscription:
        """Declares a mirror: the other stage repeats the topics, offset by offset (docs/how-to/mirror.md).

        `stage` is a Penstock of this app, which gets a role for it, or a `MirrorStage` with all of it. `url` is that of
        the other stage, where this stack cannot know it: in another account, or in another region without
        `cross_region_references`. The other stack is deployed first. Raises ValueError as `subscription`, and for
        stacks that do not know their regions.
        """
        if isinstance(stage, Penstock):
            stage = stage._mirror_stage(name, topics, self, prefix, url)
        elif prefix or url:
            raise ValueError(f"mirror {name!r}: give prefix and url in the MirrorStage")
        return self.subscription(
            name, topics, stage, start="earliest", removal_policy=removal_policy, alarm_age_ms=alarm_age_ms
        )

    def mirror_role(
        self, name: str, topics: Sequence[Topic | str], source: "Penstock | str", *, prefix: str = ""
    ) -> iam.Role:
        """Lets another stage push the mirror of that name: a role, and access rules for these topics behind the prefix.

        `source` is the other stage, or the ARN of its role `<stage>-targets-<region>`. The role may call one path,
        that of the mirror. Raises ValueError for a stack without a region, and for what is no ARN of a role.
        """
        region = Stack.of(self).region
        if Token.is_unresolved(region):
            raise _without_region(self)
        source_arn, account = _role_and_account(source)
        role = role_of_mirror(
            Construct(_room(self, "Mirrors"), name),
            name=_mirror_role_name(self.settings.name, name, region),
            source_role_arn=source_arn,
            source_account=account,
            append_arn=self._api.route_arn(ROUTE_BY_KEY[_PUSH_ROUTE], name=name),
        )
        for topic in topics:
            for operation in ("alter", "write"):
                self.allow(role, operation, f"topic:{prefix}{plain_name(topic)}")
        return role

    def _mirror_stage(
        self, name: str, topics: Sequence[Topic | str], source: "Penstock", prefix: str, url: str | None
    ) -> MirrorStage:
        """This stage as the target of a mirror of the source, which is deployed later."""
        here, there = Stack.of(self), Stack.of(source)
        if Token.is_unresolved(there.region):
            raise _without_region(source)
        self.mirror_role(name, topics, source, prefix=prefix)
        there.add_stack_dependency(here)
        role = here.format_arn(
            service="iam",
            region="",
            resource="role",
            resource_name=_mirror_role_name(self.settings.name, name, here.region),
        )
        return MirrorStage(url=url or self.url, region=here.region, role_arn=role, prefix=prefix, source=source.url)

    def schedule(
        self,
        name: str,
        topic: Topic | str,
        *,
        cron: str,
        record: Mapping[str, Any] | str,
        time_zone: str = UTC_ZONE,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
    ) -> Schedule:
        """Declares a schedule that sends the record to the topic at the times of a cron expression.

        `record` is its value, or has `key`, `value` and `headers`, as the HTTP API has them. Raises ValueError for a
        mistake in name or times.
        """
        made = Schedule(
            _room(self, "DeclaredSchedules"),
            name=name,
            topic=topic,
            times=(cron, time_zone),
            record={"value": record} if isinstance(record, str) else record,
            removal_policy=removal_policy,
            provision=self._provision,
        )
        # Its creation switches on the rule that runs schedules, and starts the first run. Both must be there.
        made.node.add_dependency(self.node.find_child("TimerSource"), self.node.find_child("Schedules"))
        return made

    def allow(self, principal: iam.IGrantable | str, operation: str, *resources: str) -> None:
        """Declares access rules: the principal may do the operation on these resources, such as `topic:shop.*`.

        Name roles outside of this app by their ARN, or by a beginning of it and a `*`. A rule gives no right in IAM.
        It goes with the stack. Raises ValueError for a rule that the service would refuse.
        """
        self._access_rules().allow(principal, operation, *resources)

    def deny(self, principal: iam.IGrantable | str, operation: str, *resources: str) -> None:
        """Declares access rules that deny, as `allow`. A deny goes before each allow."""
        self._access_rules().allow(principal, operation, *resources, permission=DENY)

    def quota(self, subject: str, name: iam.IGrantable | str, *, shared: bool = False, **limits: int) -> None:
        """Declares the quota of a `principal` or a `topic`, or of all whose names begin like `name`, which ends in `*`.

        `limits` are those of the API, such as `produce_bytes_per_s`. With `shared`, all names that match have one
        budget. A quota of that name that is there is replaced, and goes with the stack. Raises ValueError for a quota
        that the service would refuse.
        """
        quotas = Quotas(room=lambda: (_room(self, "Quotas"), self._provision))
        quotas.put(subject, name, limits, is_shared=shared)

    def grant_admin(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allows every call of the API, and to be woken by every topic."""
        return self._rights.everything(grantee)

    def grant_direct(self, grantee: iam.IGrantable, *jobs: str) -> iam.Grant:
        """Allows to invoke the functions for these jobs: `produce`, `consume`, `transact` or `admin`, on every topic.

        IAM sees no topic in a direct call, so access rules narrow it. The grantee may also ask the API for the
        functions, as clients of `auto` do. Raises ValueError for a stage without `direct`, for no job, and for a job
        that does not exist.
        """
        if self._direct is None:
            raise ValueError(f"stage {self.settings.name} takes no direct calls: give it direct=True")
        if not jobs:
            raise ValueError("grant_direct without a job: give produce, consume, transact or admin")
        statements = [self._direct.invoke_statement(job) for job in jobs]
        resources = sorted({resource for each in statements for resource in each.resources})
        invoked = iam.Grant.add_to_principal(
            grantee=grantee, actions=["lambda:InvokeFunction"], resource_arns=resources
        )
        question = self._api.route_arn(ROUTE_BY_KEY["GET /v1/metadata"])
        return invoked.combine(
            iam.Grant.add_to_principal(grantee=grantee, actions=["execute-api:Invoke"], resource_arns=[question])
        )

    @property
    def url(self) -> str:
        """The URL of the API, as the SDK reads it from PENSTOCK_URL."""
        return self._api.url

    @property
    def token_url(self) -> str:
        """The URL of the API for callers with tokens. Raises ValueError for a stage without `jwt`."""
        if self._token_api is None:
            raise ValueError(f"stage {self.settings.name} takes no tokens: give it jwt=Jwt(issuer=…, audiences=[…])")
        return self._token_api.url

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which the SDK finds this Penstock, for a function or a container."""
        direct = {} if self._direct is None else {FUNCTIONS_VARIABLE: self._direct.arn}
        return {"PENSTOCK_URL": self.url, **direct}

    def add_environment(self, function: lambda_.Function) -> None:
        """Sets the variables of `environment` on a function."""
        for name, value in self.environment.items():
            function.add_environment(name, value)

    def _consumer_metrics(self, kind: ConsumerKind, name: str) -> ConsumerMetrics:
        return ConsumerMetrics(settings=self.settings, consumer=Consumer(kind, name), pin=self._pins.pin)

    def _access_rules(self) -> AccessRules:
        """The rules that grants write."""
        return AccessRules(lambda: (_room(self, "Acls"), self._provision))

    @cached_property
    def _provision(self) -> Provision:
        return Provision(self, "Provision", functions=self._functions, targets=self._targets)

    def _ring(
        self,
        settings: StageSettings,
        functions: Mapping[str, lambda_.Function],
        releases: Releases,
        api: Api,
        storage: StageStorage,
        spark: SparkJobs,
    ) -> None:
        """Makes the alarms, and the canary that two of them stop."""
        alarms = Alarms(
            self,
            "Alarms",
            settings=settings,
            functions=functions,
            access_log=api.access_log,
            log_table=storage.tables.log,
        )
        if settings.canary is not None and settings.canary.is_gradual:
            moving = releases.api_aliases | ({} if self._direct is None else self._direct.moving)
            CanaryDeployment(self, "Canary", settings=settings, aliases=moving, alarms=alarms.stop_a_release)
        Failures(self, "Failures", settings=settings, functions=functions)
        if settings.repairs_zones:
            ZoneAlarms(self, "ZoneAlarms", settings=settings)
        CompactionMetrics(
            self,
            "CompactionMetrics",
            settings=settings,
            log_group=spark.log_group,
            log_group_of_glue=spark.log_group_of_glue,
        )
        runs = JobRunAlarms(self, "JobRunAlarms", settings=settings, application=spark.application, jobs=spark.jobs)
        self._output("FailedRunsQueueUrl", runs.queue.queue_url)
        if settings.alarm_topic_arn is None:
            Annotations.of(self).add_warning_v2(
                "penstock:alarms-without-receiver",
                "the alarms of this stage tell no one: set alarm_topic, with app.py by `-c alarm_topic_arn=<SNS "
                "topic>`, or alarms=False, which saves their price",
            )

    def _empty_on_delete(self, settings: StageSettings, storage: StageStorage, spark: SparkJobs) -> None:
        """Lets `cdk destroy` delete the buckets and the database of a stage that keeps no data.

        Functions go first, because they write.
        """
        if settings.keeps_data_on_delete or not settings.empties_buckets:
            return
        buckets = (*storage.zones.all, storage.archive.place, spark.results.place)
        emptying = Emptying(self, "Emptying", settings=settings, buckets=buckets, catalog=spark.catalog)
        self.node.find_child("Functions").node.add_dependency(emptying)

    def _api_outputs(self, api: Api, policies: ClientPolicies) -> None:
        Stack.of(self).add_metadata(f"{METADATA_KEY}{self._output_prefix}", settings_text(self.settings))
        Stack.of(self).add_metadata(
            f"{RELEASE_KEY}{self._output_prefix}", json.dumps(own_facts(self.settings.small_appends).to_json())
        )
        self._output("ApiUrl", api.url)
        self._output("ApiId", api.api_id)
        self._output("AccessLogGroup", api.access_log_name)
        self._output("ProducePolicyArn", policies.produce.managed_policy_arn)
        self._output("ConsumePolicyArn", policies.consume.managed_policy_arn)
        self._output("TransactPolicyArn", policies.transact.managed_policy_arn)
        self._output("AdminPolicyArn", policies.admin.managed_policy_arn)

    def _storage_outputs(self, settings: StageSettings, storage: StageStorage, queues: RepairQueues | None) -> None:
        self._output("TopicsTable", storage.tables.topics.table_name)
        self._output("LogTable", storage.tables.log.table_name)
        self._output("GroupsTable", storage.tables.groups.table_name)
        for zone in storage.zones.all:
            self._output(f"Zone{zone.name.upper()}Bucket", zone.bucket_name)
        self._output("ZoneBuckets", storage.zones.environment)
        if queues is not None:
            self._output("RepairQueueUrl", queues.repairs.queue_url)
        self._output("ArchiveBucket", storage.archive.bucket_name)
        for variable, value in rights_without_rules(self.settings).items():
            self._output(STORAGE_OUTPUTS[variable], value)
        self._output("Access", _ACCESS[self.settings.acl_default])
        if settings.small_appends != NO_ITEMS:
            self._output("InlineBytesMax", str(settings.small_appends))

    def _starting_outputs(self, timers: TimerQueues, push: PushQueues, wake_ups: WakeUps) -> None:
        self._output("TimersQueueUrl", timers.seconds.queue_url)
        self._output("TimerPlaces", timers.environment)
        self._output("DeadMessagesQueueUrl", timers.dead.queue_url)
        self._output("DeliveriesQueueUrl", push.deliveries.queue_url)
        self._output("DeadStreamQueueUrl", push.dead.queue_url)
        self._output("WakeUpHosts", wake_ups.hosts)

    def _job_outputs(self, spark: SparkJobs) -> None:
        self._output("ResultsBucket", spark.results.bucket_name)
        if spark.catalog is not None:
            self._output("Catalog", spark.catalog.option)
        self._output("JobsLogGroup", spark.log_group.log_group_name)
        if spark.application is not None:
            self._output("JobsApplicationId", spark.application.application_id)
        for name, job in spark.jobs.items():
            self._output(f"Job{name.title()}Role", job.role_arn)
            self._output(f"Job{name.title()}Script", job.script_url)
            self._output(f"Job{name.title()}Glue", job.glue_name)

    def _output(self, name: str, value: str) -> None:
        """Makes an output with the name, behind the id of this construct: `QueueApiUrl`."""
        CfnOutput(self, name, value=value).override_logical_id(f"{self._output_prefix}{name}")


def _without_region(stage: Construct) -> ValueError:
    return ValueError(f"{stage.node.path}: a mirror needs the region of its stack: give it env=Environment(region=…)")


def _role_and_account(source: Penstock | str) -> tuple[str, str]:
    """The ARN of the role under which the source pushes, and the account of it."""
    if isinstance(source, Penstock):
        return source._targets.role_arn, Stack.of(source).account
    parts = source.split(":")
    if not Token.is_unresolved(source) and not (len(parts) == 6 and parts[5].startswith("role/")):
        raise ValueError(f"{source!r:.100}: give the ARN of the role under which the other stage pushes")
    return source, Arn.split(source, ArnFormat.SLASH_RESOURCE_NAME).account or ""


def _mirror_role_name(stage: str, name: str, region: str) -> str:
    """Roles of all regions share one space of names, of 64 characters."""
    return f"{stage}-mirror-{hashlib.sha256(f'{name} {region}'.encode()).hexdigest()[:12]}"


def _room(scope: Construct, construct_id: str) -> Construct:
    """The construct with that id, made by its first use."""
    found = scope.node.try_find_child(construct_id)
    return found if isinstance(found, Construct) else Construct(scope, construct_id)


def _letters_of(scope: Construct) -> str:
    """The ids of a construct below its stack, as one word."""
    ids = scope.node.path.removeprefix(Stack.of(scope).node.path)
    return "".join(each for each in ids if each.isalnum())


def warn_of_region(scope: Construct, region: str | None) -> None:
    """Warn if the region is unknown to the CDK: it may be mistyped, or newer than the CDK."""
    if region is not None and region not in {each.name for each in RegionInfo.regions}:
        Annotations.of(scope).add_warning_v2(
            "penstock:unknown-region",
            f"this version of the CDK knows no region {region!r}: if it is mistyped, the deploy fails",
        )
