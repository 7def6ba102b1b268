"""The managed policies that users attach to the principals of their applications and operators.

PenstockProduce, PenstockConsume and PenstockTransact allow the routes of one job on every topic. A policy of one's own
may name a topic instead of `*`. IAM's `*` also matches slashes: whoever may describe every topic (GET /v1/topics/*) may
also read them by GET /v1/topics/{topic}/partitions/{partition}/records. Producers learn partitions by GET /v1/metadata
instead, and so may not read.
"""

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra import routes
from infra.api import Api
from infra.routes import Route
from infra.settings import StageSettings
from infra.wildcards import acknowledge_wildcard

PRODUCE_ROUTES = (routes.TOPIC_METADATA, routes.PRODUCE, routes.PRODUCE_RECORDS)
CONSUME_ROUTES = (
    routes.TOPIC_METADATA,
    routes.DESCRIBE_TOPIC,
    routes.LIST_OFFSETS,
    routes.FETCH,
    routes.FETCH_RECORDS,
    routes.HEARTBEAT,
    routes.COMMIT_OFFSETS,
    routes.COMMITTED_OFFSETS,
)
# Apart from producing: a transaction also commits offsets of groups.
TRANSACT_ROUTES = (routes.TOPIC_METADATA, routes.BEGIN_TRANSACTIONS, routes.TRANSACT)
ADMIN_ROUTES = routes.ROUTES


class ClientPolicies(Construct):
    """execute-api:Invoke on exactly the routes that producing, consuming and operating need."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings, api: Api) -> None:
        super().__init__(scope, construct_id)
        self._prefix = settings.name.title().replace("-", "")
        self._api = api
        self.produce = self._policy("Produce", "Produce to any topic of Penstock", PRODUCE_ROUTES)
        self.consume = self._policy("Consume", "Consume any topic of Penstock and commit offsets", CONSUME_ROUTES)
        self.transact = self._policy("Transact", "Transactions on any topic and group of Penstock", TRANSACT_ROUTES)
        self.admin = self._policy("Admin", "Call every route of Penstock", ADMIN_ROUTES)

    def _policy(self, job: str, description: str, allowed: tuple[Route, ...]) -> iam.ManagedPolicy:
        resources = [self._api.route_arn(route) for route in allowed]
        policy = iam.ManagedPolicy(
            self,
            job,
            managed_policy_name=f"{self._prefix}{job}",
            description=description,
            statements=[iam.PolicyStatement(actions=["execute-api:Invoke"], resources=resources)],
        )
        for resource in (resource for resource in resources if "*" in resource):
            acknowledge_wildcard(policy, resource, "Any topic and any group, on a route that is named.")
        return policy
