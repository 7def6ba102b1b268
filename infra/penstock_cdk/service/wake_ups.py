"""The Event API of AppSync, which carries wake-ups from appends to the readers that wait (docs/adr/0025)."""

from aws_cdk import aws_appsync as appsync
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.settings import StageSettings
from penstock_core.log.wake_up import NAMESPACE


class WakeUps(Construct):
    """An Event API with one channel namespace. Every connection, subscription and event needs IAM's permission.

    It costs nothing while no reader waits. AWS's resource of a publication and of a subscription is the namespace: IAM
    cannot narrow it to the channel of one topic. A wake-up carries ids and offsets only.
    """

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        iam_only = [appsync.CfnApi.AuthModeProperty(auth_type="AWS_IAM")]
        self._api = appsync.CfnApi(
            self,
            "EventApi",
            name=settings.name,
            event_config=appsync.CfnApi.EventConfigProperty(
                auth_providers=[appsync.CfnApi.AuthProviderProperty(auth_type="AWS_IAM")],
                connection_auth_modes=iam_only,
                default_publish_auth_modes=iam_only,
                default_subscribe_auth_modes=iam_only,
            ),
        )
        namespace = appsync.CfnChannelNamespace(self, "Namespace", api_id=self._api.attr_api_id, name=NAMESPACE)
        self._namespace = namespace.attr_channel_namespace_arn

    @property
    def hosts(self) -> str:
        """The hosts for HTTP and for WebSockets, as functions and jobs read them."""
        return f"{self._api.attr_dns_http},{self._api.attr_dns_realtime}"

    def publish_statement(self) -> iam.PolicyStatement:
        """Allows to publish wake-ups, and not to receive them."""
        return iam.PolicyStatement(actions=["appsync:EventPublish"], resources=[self._namespace])

    def receive_statements(self) -> list[iam.PolicyStatement]:
        """Allows to connect and to subscribe to all wake-ups, and not to publish them."""
        return [
            iam.PolicyStatement(actions=["appsync:EventConnect"], resources=[self._api.attr_api_arn]),
            iam.PolicyStatement(actions=["appsync:EventSubscribe"], resources=[self._namespace]),
        ]
