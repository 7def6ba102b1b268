"""The bucket that jobs write results to: `lake/` for archived topics, `reports/` for the files of analyze.

The database of Glue's catalog that holds archived topics as tables. It costs nothing.

The first archive makes it, so that a stage that keeps its data can be deployed again next to its old database.
"""

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from penstock_cdk.settings import StageSettings
from penstock_cdk.storage.zones import MULTIPART_DAYS_MAX, OrdinaryZone


class Results(Construct):
    """An ordinary bucket, encrypted and never public."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=settings.enforces_tls,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=[
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(MULTIPART_DAYS_MAX))
            ],
            removal_policy=RemovalPolicy.RETAIN if settings.keeps_data_on_delete else RemovalPolicy.DESTROY,
        )
        Validations.of(self._bucket).acknowledge(
            Acknowledgment(id="AwsSolutions-S1", reason="Only jobs write here, and each run has a log.")
        )
        self.bucket_name = self._bucket.bucket_name
        self.place = OrdinaryZone("results", self._bucket.bucket_name, self._bucket.bucket_arn)

    def statements(self, folder: str) -> list[iam.PolicyStatement]:
        """Allows to read, write, delete and list the objects of one folder."""
        return [
            iam.PolicyStatement(
                actions=["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
                resources=[f"{self._bucket.bucket_arn}/{folder}/*"],
            ),
            iam.PolicyStatement(
                actions=["s3:ListBucket"],
                resources=[self._bucket.bucket_arn],
                conditions={"StringLike": {"s3:prefix": [f"{folder}/*", folder]}},
            ),
        ]


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
