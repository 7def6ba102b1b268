"""The regional bucket of the archive tier. Compaction writes large segments of one partition each into it."""

from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.settings import StageSettings
from penstock_cdk.storage.zones import OrdinaryZone, segment_bucket


class Archive(Construct):
    """An ordinary bucket, in every stage. `place` has the statements that allow to read and to sweep it."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        bucket = segment_bucket(self, "Bucket", settings)
        self.bucket_name = bucket.bucket_name
        self.place = OrdinaryZone("archive", bucket.bucket_name, bucket.bucket_arn)

    def compaction_statements(self) -> list[iam.PolicyStatement]:
        """Allows compaction to read segments, to put objects, also in parts, and to abort uploads."""
        keys = f"{self.place.bucket_arn}/*"
        return [
            iam.PolicyStatement(actions=["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"], resources=[keys]),
            *self.place.missing_statements(),
        ]
