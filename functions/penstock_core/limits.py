"""Every limit of the service, in one place. docs/limits.md lists them; each is enforced and tested."""

KIB = 1024
MIB = 1024 * KIB

# Requests. Lambda's synchronous payload is 6 MB, and binary bodies travel as base64 (4/3): 4 MiB leaves room.
REQUEST_BYTES_MAX = 4 * MIB
FRAME_HEADER_BYTES_MAX = 256 * KIB
REQUEST_PARTITIONS_MAX = 100  # topic-partitions in one produce or fetch: DynamoDB's BatchGetItem takes 100 keys

# Batches and records. A batch is what a topic's max_batch_bytes bounds; a record cannot be larger than its batch.
BATCH_BYTES_DEFAULT_MAX = 1 * MIB
BATCH_BYTES_MIN = 1 * KIB
BATCH_BYTES_MAX = REQUEST_BYTES_MAX - FRAME_HEADER_BYTES_MAX
BATCH_RECORDS_MAX = 1_000_000
REF_RECORDS_MAX = 2**32 - 1  # of one partition in one request, as a ref counts them in 32 bits
BATCH_DECODED_BYTES_MAX = 64 * MIB  # what a compressed batch may expand to when the service itself decodes it

# JSON produce and fetch.
JSON_RECORDS_MAX = 10_000
JSON_RESPONSE_BYTES_MAX = 4 * MIB
JSON_RECORD_BYTES_MAX = 6 * MIB - 64 * KIB  # one record alone: what Lambda's answer of 6 MB can carry

# Fetch.
FETCH_BYTES_DEFAULT_MAX = 1 * MIB
FETCH_BYTES_MAX = REQUEST_BYTES_MAX
FETCH_WAIT_MS_MAX = 20_000  # API Gateway ends a call after 30 s
FETCH_REFS_MAX = 256  # ranged gets that one fetch may need at most

# Names and topics.
NAME_LENGTH_MAX = 249  # as Kafka
TOPIC_PARTITIONS_MAX = 1_000
TOPIC_LIST_MAX = 1_000  # topics in one page of the list
MIN_INSYNC_ZONES_DEFAULT = 2
ZONES_MAX = 8  # bits of a ref's bitmap

# Retention. A topic keeps records for a time and up to a size, each of which may be unlimited (-1).
UNLIMITED = -1
RETENTION_MS_DEFAULT = 14 * 24 * 3_600_000
RETENTION_MS_MIN = 60_000
RETENTION_MS_MAX = 100 * 365 * 24 * 3_600_000
RETENTION_BYTES_MIN = 1 * MIB
RETENTION_BYTES_MAX = 2**50
DELETE_RETENTION_MS_DEFAULT = 24 * 3_600_000
LOG_START_GRACE_MS = 60_000  # older than any function that reads may run (30 s), and clocks may differ a little
SWEEP_GRACE_MS = 24 * 3_600_000  # far longer than any function may take between its put and its update

# Groups.
COMMIT_OFFSETS_MAX = 1_000  # offsets in one commit
COMMIT_METADATA_BYTES_MAX = 4 * KIB
OFFSET_MAX = 2**63 - 1
GROUP_MEMBERS_MAX = 2_000
MEMBER_ID_LENGTH_MAX = 100
CLIENT_ID_LENGTH_MAX = 100
SUBSCRIPTION_NAMES_MAX = 100  # topics and patterns of one member: its item is written by each of its heartbeats
SUBSCRIPTION_BYTES_MAX = 8 * KIB
SESSION_TIMEOUT_MS_DEFAULT = 45_000
SESSION_TIMEOUT_MS_MIN = 2_000
SESSION_TIMEOUT_MS_MAX = 30 * 60_000
HEARTBEAT_INTERVAL_MS_DEFAULT = 5_000
HEARTBEAT_INTERVAL_MS_MIN = 250
HEARTBEATS_PER_SESSION_MIN = 3  # so that one that is lost or throttled costs nobody a partition
WAITING_HEARTBEAT_MS = 1_000  # how soon a member asks again that waits for another to release
ACQUIRE_MAX = 100  # leases that one heartbeat acquires: DynamoDB's BatchGetItem takes 100 keys
GROUP_CHECK_MS_MAX = 30_000  # how long new topics and partitions may go unnoticed
GROUP_CHECK_MS_MIN = 1_000
OFFSETS_RETENTION_MS_DEFAULT = 90 * 24 * 3_600_000
OFFSETS_RETENTION_MS_MIN = 60_000
OFFSETS_RETENTION_MS_MAX = 100 * 365 * 24 * 3_600_000
GROUP_LIST_MAX = 100  # groups in one page of the list
TARGET_CHUNK_BYTES = 300 * KIB  # of a target assignment, in one item of 400 KB at most

# The index.
TAIL_ROLL_REFS = 16  # the tail gives its refs to a page when its length reaches a multiple of this
PAGE_REFS_MAX = 128  # refs that one roll moves at most, after rolls that failed

# Idempotent producers, per partition.
HEAD_PRODUCERS_KEPT = 20  # stay in the head when a roll moves the longest silent ones out: it is 2 KiB at most then
PRODUCER_EPOCH_MAX = 2**15 - 1  # as batch headers have it
PRODUCER_KEPT_MS = 7 * 24 * 3_600_000  # how long one that was moved out is remembered

# Compaction and the archive tier.
ARCHIVE_SEGMENT_BYTES = 64 * MIB
ARCHIVE_REF_BYTES = FETCH_BYTES_DEFAULT_MAX  # so that a fetch of the default size reads one ref
ARCHIVE_REF_MS_MAX = 24 * 3_600_000  # of records in one ref: retention lets go of whole refs
COMPACTION_AGE_MS_DEFAULT = 3_600_000  # pages with younger segments are left alone
COMPACTION_REFS_MIN_DEFAULT = 32  # refs that are worth a rewriting
COMPACTION_RUN_PAGES_MAX = 64  # with half as many new ones, their lease and the like: 100 actions, what DynamoDB takes
COMPACTION_DIRTY_SHARE_DEFAULT = 0.5  # of the bytes, not cleaned yet, from which on cleaning is worth it
COMPACTION_KEYS_MAX_DEFAULT = 1_000_000  # keys in memory, about 170 bytes each
COMPACTION_LEASE_MS = 300_000  # longer than the rewriting of one segment takes; each swap extends it
COMPACTION_RUN_MS_MAX = 3_600_000  # from a segment's id to its swap: far less than the sweep's grace
MERGED_SEQUENCES_KEPT_MS = 7 * 24 * 3_600_000  # how long repeats of merged appends find their first offset

# Repair.
REPORT_INTERVAL_MS = 60_000  # a function instance reports one bad copy once in this time
SCRUB_BYTES = 1024 * MIB  # what a run of the scrub reads, about
REPORTS_REMEMBERED_MAX = 10_000  # bad copies that it reports in this time at most

# Transactions. DynamoDB takes 100 actions in one: the producer's own, and these.
TRANSACTION_PARTS_MAX = 99  # partitions and offsets together
TRANSACTION_STAGES_MAX = 64  # parts of its data that are put before the last one
TRANSACTION_MS_MAX = 15 * 60_000  # from its first stage to its commit: far less than the sweep's grace
