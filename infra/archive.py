"""The regional bucket of the archive tier: large segments that compaction has made, of one partition each."""

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.settings import StageSettings
from infra.zones import OrdinaryZone, segment_bucket


class Archive(Construct):
    """An ordinary bucket in every stage. `place` has the permissions that reading and sweeping it take."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        bucket = segment_bucket(self, "Bucket", settings)
        self.bucket_name = bucket.bucket_name
        self.place = OrdinaryZone("archive", bucket.bucket_name, bucket.bucket_arn)

    def compaction_statements(self) -> list[iam.PolicyStatement]:
        """Allows what compaction does: to read segments that are to be merged again, to put objects, also in parts, and
        to give up an upload."""
        keys = f"{self.place.bucket_arn}/*"
        return [
            iam.PolicyStatement(actions=["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"], resources=[keys]),
            *self.place.missing_statements(),
        ]
