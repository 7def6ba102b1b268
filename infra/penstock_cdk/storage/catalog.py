"""The database of Glue's catalog that holds archived topics as tables. It costs nothing.

The first archive makes it, so that a stage that keeps its data can be deployed again next to its old database.
"""

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.settings import StageSettings


class Catalog:
    """A database with the name of the stage. Its tables have the names of topics, so permissions cannot name them."""

    def __init__(self, scope: Construct, *, settings: StageSettings) -> None:
        self._stack = Stack.of(scope)
        self._database = settings.name.replace("-", "_")
        self.option = f"glue:{self._database}"

    @property
    def database(self) -> str:
        """The name of the database."""
        return self._database

    def statements(self, *, writes: bool) -> list[iam.PolicyStatement]:
        """Allows to find the database and its tables. With `writes`, also allows to create and update them."""
        actions = ["glue:GetDatabase", "glue:GetTable", "glue:GetTables"]
        if writes:
            actions += ["glue:CreateDatabase", "glue:CreateTable", "glue:UpdateTable"]
        names = ("catalog", f"database/{self._database}", f"table/{self._database}/*")
        return [iam.PolicyStatement(actions=actions, resources=[self._arn(name) for name in names])]

    def drop_statement(self) -> iam.PolicyStatement:
        """Allows to delete the database with all that is in it (glue/latest/dg/glue-specifying-resource-arns.html)."""
        inside = (f"{kind}/{self._database}/*" for kind in ("table", "userDefinedFunction"))
        names = ("catalog", f"database/{self._database}", *inside)
        return iam.PolicyStatement(actions=["glue:DeleteDatabase"], resources=[self._arn(name) for name in names])

    def _arn(self, name: str) -> str:
        return f"arn:{self._stack.partition}:glue:{self._stack.region}:{self._stack.account}:{name}"
