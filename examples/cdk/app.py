"""A CDK app of your own with a queue in it: a producer function, a function that Penstock calls, and dead letters.

    pip install "./penstock-0.1.0-py3-none-any.whl[cdk]"
    pip install --target examples/cdk/handlers aws-lambda-powertools ./penstock-0.1.0-py3-none-any.whl
    npx cdk deploy --app 'python examples/cdk/app.py'

The second command puts the SDK and Powertools into the package of the functions. docs/how-to/cdk.md has the options of
pip that choose the platform, and all else.
"""

import os
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
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

        producer = self._function("Producer", "producer.handler")
        self.queue.add_environment(producer)
        orders.grant_produce(producer)

        consumer = self._function("Consumer", "consumer.handler")
        parcels = self._parcels()
        parcels.grant_write_data(consumer)
        consumer.add_environment("PARCELS_TABLE", parcels.table_name)
        orders.on_records(consumer, dead_letter_topic=dead, attempts_max=3)

    def _parcels(self) -> dynamodb.Table:
        """The table of the consumer. Its key is the place of a record, because a record may come twice."""
        table = dynamodb.Table(
            self,
            "Parcels",
            partition_key=dynamodb.Attribute(name="place", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        cdk.CfnOutput(self, "ParcelsTable", value=table.table_name)
        return table

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
