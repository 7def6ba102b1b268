"""The managed policies that you attach to the principals of your applications and operators.

PenstockProduce, PenstockConsume and PenstockTransact allow the routes of one job on every topic. The region is
behind each name, as in `PenstockProduce-us-east-1`. In a policy of your own, a JSON route may name a topic instead of
`*`. The binary routes name topics in their bodies, which IAM does not see, so IAM allows them for all topics or for
none.

IAM's `*` also matches slashes. A principal that may describe every topic (GET /v1/topics/*) may also read them by
GET /v1/topics/{topic}/partitions/{partition}/records. For this reason, producers learn partitions by GET /v1/metadata.
"""

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.service.api import Api
from penstock_cdk.service.direct import DirectCalls
from penstock_cdk.service.wake_ups import WakeUps
from penstock_cdk.settings import StageSettings
from penstock_cdk.wildcards import acknowledge_wildcard
from penstock_core.routes import CONSUME, PRODUCE, ROUTES, TRANSACT


class ClientPolicies(Construct):
    """Four policies, which allow execute-api:Invoke on exactly the routes of their job. That of Admin names none.

    Consumers may also receive wake-ups. No client may publish them. Where the stage takes direct calls, each policy
    also allows lambda:InvokeFunction on its own alias, behind which the functions serve the routes of the job alone.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        api: Api,
        wake_ups: WakeUps,
        direct: DirectCalls | None,
    ) -> None:
        super().__init__(scope, construct_id)
        # IAM's names are global, and a stage may be in several regions of an account. They are equal in either case. So
        # the hyphens of the stage's name stay: `shop-1` and `shop1` are two stages.
        self._prefix, self._region = settings.name.title(), Stack.of(self).region
        self._direct = direct

        def arns(policy: str) -> list[str]:
            return [api.route_arn(route) for route in ROUTES if policy in route.policies]

        self.produce = self._policy("Produce", "Produce to any topic of Penstock", arns(PRODUCE))
        self.consume = self._policy("Consume", "Consume any topic of Penstock and commit offsets", arns(CONSUME))
        self.consume.add_statements(*wake_ups.receive_statements())
        self.transact = self._policy("Transact", "Transactions on any topic and group", arns(TRANSACT))
        self.admin = self._policy("Admin", "Call every route of Penstock", api.all_routes_arns())
        self.admin.add_statements(*wake_ups.receive_statements())

    def _policy(self, job: str, description: str, resources: list[str]) -> iam.ManagedPolicy:
        policy = iam.ManagedPolicy(
            self,
            job,
            managed_policy_name=f"{self._prefix}{job}-{self._region}",
            description=description,
            statements=[
                iam.PolicyStatement(actions=["execute-api:Invoke"], resources=resources),
                *([] if self._direct is None else [self._direct.invoke_statement(job)]),
            ],
        )
        for resource in (resource for resource in resources if "*" in resource):
            acknowledge_wildcard(policy, resource, "The policy covers any topic and group.")
        return policy
