"""The zones' buckets, which hold segments: directory buckets of S3 Express or ordinary ones (storage_profile.py).

A directory bucket is encrypted and never public. A client reaches it by a session, and the permission to open one with
the mode ReadOnly or ReadWrite is the permission to read or to write.
"""

from abc import ABC, abstractmethod

from aws_cdk import Acknowledgment, CfnDeletionPolicy, Duration, RemovalPolicy, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3express as s3express
from constructs import Construct

from penstock_cdk.settings import StageSettings
from penstock_cdk.storage_profile import ZonePlan

MULTIPART_DAYS_MAX = 1  # S3 then removes the parts of an unfinished upload


class Zone(ABC):
    """The bucket of one zone, and the statements that allow to read and write its objects."""

    def __init__(self, name: str, bucket_name: str, bucket_arn: str) -> None:
        self.name = name
        self.bucket_name = bucket_name
        self.bucket_arn = bucket_arn

    @abstractmethod
    def read_statement(self) -> iam.PolicyStatement:
        """Allows GetObject of any object by its key, but not to list objects."""

    @abstractmethod
    def write_statement(self) -> iam.PolicyStatement:
        """Allows PutObject of any object."""

    @abstractmethod
    def missing_statements(self) -> list[iam.PolicyStatement]:
        """Lets S3 tell a reader that an object is missing. Without it, S3 answers that access is denied."""

    @abstractmethod
    def sweep_statements(self) -> tuple[iam.PolicyStatement, ...]:
        """Allows to list the objects and to delete them."""

    def emptying_statements(self) -> tuple[iam.PolicyStatement, ...]:
        """Allows to list and delete whatever is in the bucket."""
        return self.sweep_statements()


class OrdinaryZone(Zone):
    """A regional S3 bucket that stands for a zone. `keys` are the objects that may be put and deleted."""

    def __init__(self, name: str, bucket_name: str, bucket_arn: str, *, keys: str = "*") -> None:
        super().__init__(name, bucket_name, bucket_arn)
        self.written_arn = f"{bucket_arn}/{keys}"

    def read_statement(self) -> iam.PolicyStatement:
        """Allows s3:GetObject on every key."""
        return iam.PolicyStatement(actions=["s3:GetObject"], resources=[f"{self.bucket_arn}/*"])

    def write_statement(self) -> iam.PolicyStatement:
        """Allows s3:PutObject on the keys."""
        return iam.PolicyStatement(actions=["s3:PutObject"], resources=[self.written_arn])

    def missing_statements(self) -> list[iam.PolicyStatement]:
        """Allows s3:ListBucket. S3 then answers 404 for a missing object, and 403 without it."""
        return [iam.PolicyStatement(actions=["s3:ListBucket"], resources=[self.bucket_arn])]

    def sweep_statements(self) -> tuple[iam.PolicyStatement, ...]:
        """Allows s3:ListBucket, and s3:DeleteObject on the keys."""
        return (
            iam.PolicyStatement(actions=["s3:ListBucket"], resources=[self.bucket_arn]),
            iam.PolicyStatement(actions=["s3:DeleteObject"], resources=[self.written_arn]),
        )

    def emptying_statements(self) -> tuple[iam.PolicyStatement, ...]:
        """Allows s3:ListBucket, and s3:DeleteObject on every key."""
        return OrdinaryZone(self.name, self.bucket_name, self.bucket_arn).sweep_statements()


class ExpressZone(Zone):
    """A directory bucket in one availability zone (S3 user guide, "Authorizing Zonal endpoint API operations")."""

    def read_statement(self) -> iam.PolicyStatement:
        """Allows a session with the mode ReadOnly."""
        return self._session_statement("ReadOnly")

    def write_statement(self) -> iam.PolicyStatement:
        """Allows a session with the mode ReadWrite, which may also delete objects."""
        return self._session_statement("ReadWrite")

    def missing_statements(self) -> list[iam.PolicyStatement]:
        """Returns nothing, because every session may list objects."""
        return []

    def sweep_statements(self) -> tuple[iam.PolicyStatement, ...]:
        """Allows a session with the mode ReadWrite."""
        return (self._session_statement("ReadWrite"),)

    def _session_statement(self, mode: str) -> iam.PolicyStatement:
        return iam.PolicyStatement(
            actions=["s3express:CreateSession"],
            resources=[self.bucket_arn],
            conditions={"StringEquals": {"s3express:SessionMode": mode}},
        )


class Zones(Construct):
    """The zones' buckets, in the order that the storage profile gives them."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self.all: tuple[Zone, ...] = tuple(
            self._ordinary(plan) if plan.az_id is None else self._express(plan, plan.az_id) for plan in settings.zones
        )

    @property
    def environment(self) -> str:
        """The value of PENSTOCK_ZONES: `a=<bucket>,b=<bucket>:by_hour,c=<bucket>:fallback`."""
        return ",".join(
            f"{zone.name}={zone.bucket_name}"
            + (":fallback" if plan.is_fallback else "")
            + (":by_hour" if plan.is_stand_in else "")
            for zone, plan in zip(self.all, self._settings.zones, strict=True)
        )

    def _ordinary(self, plan: ZonePlan) -> Zone:
        bucket = segment_bucket(self, f"Zone{plan.name.upper()}", self._settings)
        return OrdinaryZone(plan.name, bucket.bucket_name, bucket.bucket_arn)

    def _express(self, plan: ZonePlan, az_id: str) -> Zone:
        name = plan.name
        bucket = s3express.CfnDirectoryBucket(
            self,
            f"Zone{name.upper()}",
            data_redundancy="SingleAvailabilityZone",
            location_name=az_id,
            bucket_encryption=s3express.CfnDirectoryBucket.BucketEncryptionProperty(
                server_side_encryption_configuration=[
                    s3express.CfnDirectoryBucket.ServerSideEncryptionRuleProperty(
                        server_side_encryption_by_default=(
                            s3express.CfnDirectoryBucket.ServerSideEncryptionByDefaultProperty(sse_algorithm="AES256")
                        )
                    )
                ]
            ),
            lifecycle_configuration=s3express.CfnDirectoryBucket.LifecycleConfigurationProperty(
                rules=[
                    s3express.CfnDirectoryBucket.RuleProperty(
                        id="AbortUploads",
                        status="Enabled",
                        abort_incomplete_multipart_upload=(
                            s3express.CfnDirectoryBucket.AbortIncompleteMultipartUploadProperty(
                                days_after_initiation=MULTIPART_DAYS_MAX
                            )
                        ),
                    )
                ]
            ),
        )
        policy = CfnDeletionPolicy.RETAIN if self._settings.keeps_data_on_delete else CfnDeletionPolicy.DELETE
        bucket.cfn_options.deletion_policy = policy
        bucket.cfn_options.update_replace_policy = policy
        statements = [_allow_lifecycle(bucket.attr_arn)]
        if self._settings.enforces_tls:
            statements.append(_deny_plain_http(bucket.attr_arn))
        s3express.CfnBucketPolicy(
            self,
            f"Zone{name.upper()}Policy",
            bucket=bucket.ref,
            policy_document=iam.PolicyDocument(statements=statements),
        )
        return ExpressZone(name, bucket.ref, bucket.attr_arn)


def segment_bucket(scope: Construct, construct_id: str, settings: StageSettings) -> s3.Bucket:
    """Makes an ordinary bucket for segments: encrypted, never public, and by TLS only where the settings say so."""
    bucket = s3.Bucket(
        scope,
        construct_id,
        encryption=s3.BucketEncryption.S3_MANAGED,
        enforce_ssl=settings.enforces_tls,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        lifecycle_rules=[s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(MULTIPART_DAYS_MAX))],
        removal_policy=RemovalPolicy.RETAIN if settings.keeps_data_on_delete else RemovalPolicy.DESTROY,
    )
    Validations.of(bucket).acknowledge(
        Acknowledgment(
            id="AwsSolutions-S1",
            reason="Functions log each request, and S3 access logs of segments would cost more than they are worth.",
        )
    )
    return bucket


def _allow_lifecycle(bucket_arn: str) -> iam.PolicyStatement:
    """Lets S3 carry out the bucket's lifecycle (S3 user guide, "Working with S3 Lifecycle for directory buckets")."""
    return iam.PolicyStatement(
        principals=[iam.ServicePrincipal("lifecycle.s3.amazonaws.com")],
        actions=["s3express:CreateSession"],
        resources=[bucket_arn],
        conditions={"StringEquals": {"s3express:SessionMode": "ReadWrite"}},
    )


def _deny_plain_http(bucket_arn: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        effect=iam.Effect.DENY,
        principals=[iam.AnyPrincipal()],
        actions=["s3express:*"],
        resources=[bucket_arn],
        conditions={"Bool": {"aws:SecureTransport": "false"}},
    )
