"""The regional bucket of the archive tier. Compaction writes large segments of one partition each into it.

It also has the note of a restore (sdk/penstock/restore/note.py). No role of a stage may put or delete it: a forged note
would make an operator's command believe it.
"""

from aws_cdk import aws_iam as iam
from constructs import Construct

from penstock_cdk.settings import StageSettings
from penstock_cdk.storage.zones import OrdinaryZone, segment_bucket

SEGMENT_KEYS = "??/*"  # folders of segments have two hex digits (penstock_core/storage/keys.py), and `restore/` more


class Archive(Construct):
    """An ordinary bucket, in every stage. `place` has the statements that allow to read and to sweep it."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        bucket = segment_bucket(self, "Bucket", settings)
        self.bucket_name = bucket.bucket_name
        self.place = OrdinaryZone("archive", bucket.bucket_name, bucket.bucket_arn, keys=SEGMENT_KEYS)

    def compaction_statements(self) -> list[iam.PolicyStatement]:
        """Allows compaction to read segments, to put objects, also in parts, and to abort uploads."""
        return [
            iam.PolicyStatement(
                actions=["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"], resources=[self.place.written_arn]
            ),
            *self.place.missing_statements(),
        ]
