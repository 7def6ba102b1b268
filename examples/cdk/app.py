"""A CDK app of your own with a queue in it: a producer function, a consumer function, and a dead-letter topic.

    pip install 'penstock[cdk]'
    pip install --target examples/cdk/handlers penstock
    npx cdk deploy --app 'python examples/cdk/app.py'

The second command puts the SDK into the package of the functions. docs/how-to/cdk.md has the options of pip that choose
the platform, and all else.
"""

import os
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk import Penstock, StageSettings

HANDLERS = Path(__file__).parent / "handlers"


class Shop(cdk.Stack):
    """The stack. `settings` are for a place that is not AWS, such as the emulator; None is what you want."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings | None = None,
        env: cdk.Environment | None = None,
    ) -> None:
        super().__init__(scope, construct_id, env=env)
        self.queue = Penstock(self, "Queue", settings=settings, removal_policy=cdk.RemovalPolicy.DESTROY)
        orders = self.queue.topic("orders", partitions=3)
        dead = self.queue.topic("orders.dead")
        workers = self.queue.share_group("workers", [orders], dead_letter_topic=dead, deliveries_max=3)

        producer = self._function("Producer", "producer.handler")
        orders.grant_produce(producer)

        consumer = self._function("Consumer", "consumer.handler")
        workers.grant_consume(consumer)
        events.Rule(
            self,
            "EachMinute",
            schedule=events.Schedule.rate(cdk.Duration.minutes(1)),
            targets=[targets.LambdaFunction(consumer)],
        )

    def _function(self, construct_id: str, handler: str) -> lambda_.Function:
        function = lambda_.Function(
            self,
            construct_id,
            runtime=lambda_.Runtime(f"python{self.queue.settings.python_version}", lambda_.RuntimeFamily.PYTHON),
            handler=handler,
            code=lambda_.Code.from_asset(str(HANDLERS)),
            memory_size=512,
            timeout=cdk.Duration.seconds(20),
        )
        self.queue.add_environment(function)
        cdk.CfnOutput(self, f"{construct_id}Function", value=function.function_name)
        return function


def main() -> None:
    """Synthesizes the stack for the account and region of your credentials."""
    app = cdk.App()
    place = cdk.Environment(account=os.environ["CDK_DEFAULT_ACCOUNT"], region=os.environ["CDK_DEFAULT_REGION"])
    Shop(app, "Shop", env=place)
    app.synth()


if __name__ == "__main__":
    main()
