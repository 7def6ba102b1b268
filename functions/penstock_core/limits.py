"""Every limit of the service, in one place. docs/reference/limits.md lists them; each is enforced and tested."""

KIB = 1024
MIB = 1024 * KIB

# Requests. Lambda's synchronous payload is 6 MB, and binary bodies travel as base64 (4/3): 4 MiB leaves room.
REQUEST_BYTES_MAX = 4 * MIB
EMBEDDED_REQUEST_BYTES_MAX = 16 * MIB  # where no function carries it: all its batches become one segment
DIRECT_PATH_LENGTH_MAX = 8 * KIB  # path and query of a direct call, as long as API Gateway lets a line be
PROOF_TOKEN_LENGTH_MAX = 8 * KIB  # AWS names no bound of a session token, and its own are below 4 KB
PROOF_AGE_MS_MAX = 600_000  # STS takes a signature for 15 minutes: a proof is good for less on any clock
PROOF_AHEAD_MS_MAX = 300_000  # of a caller's clock before that of the function
PROOFS_REMEMBERED_MAX = 10_000  # by one function instance, in 4 MB: callers that share it, and their last proofs
FRAME_HEADER_BYTES_MAX = 256 * KIB  # JSON for 100 partitions takes far less
RESPONSE_BYTES_MAX = 6 * MIB - 32 * KIB  # of an answer as Lambda counts it, in its envelope; the rest is for headers
JSON_DEPTH_MAX = 64  # of arrays and objects inside each other in one document
JSON_NAMES_MAX = 10_000  # in one object of a request: each unknown name costs an explanation
REQUEST_PARTITIONS_MAX = 100  # topic-partitions in one produce or fetch: DynamoDB's BatchGetItem takes 100 keys

INLINE_BYTES_MAX = 5 * KIB  # of a segment as an item: from six write units on, an item costs more than a put to S3
EXPIRING_RETENTION_MS_MAX = 21 * 24 * 3_600_000  # of a topic whose small appends are items that DynamoDB removes
EXPIRING_MARGIN_DAYS = 9  # of such an item behind its retention: so long a raise may take to reach it
RAISE_SETTLED_MS = 45 * 60_000  # from a raise of the retention to the walk: later than what was begun before (ADR 64)
RAISE_LATE_MS = 24 * 3_600_000  # a walk that has not ended by then rings an alarm

# Batches and records. A batch is what a topic's max_batch_bytes bounds; a record cannot be larger than its batch.
BATCH_BYTES_DEFAULT_MAX = 1 * MIB
BATCH_BYTES_MIN = 1 * KIB
BATCH_BYTES_MAX = REQUEST_BYTES_MAX - FRAME_HEADER_BYTES_MAX
BATCH_RECORDS_MAX = 1_000_000  # of at least 7 bytes each: the largest batch holds fewer, uncompressed
REF_RECORDS_MAX = 2**32 - 1  # records of one partition in one request: a ref counts them in 32 bits
VALIDATED_BYTES_MAX = 128 * MIB  # decoded of one request to topics with validate_records: 0.3 s of a function's CPU
BATCH_HEADERS_MAX = 2_000_000  # of all its records: as objects they take some 100 bytes each
BATCH_DECODED_BYTES_MAX = 64 * MIB  # the service decodes a compressed batch up to this size

# JSON produce and fetch.
JSON_RECORDS_MAX = 10_000  # in one request: the service encodes them one by one
JSON_HEADERS_MAX = 1_000  # of one record
JSON_RESPONSE_BYTES_MAX = 4 * MIB  # of the items of one page, escaped as in Lambda's envelope
JSON_RECORD_BYTES_MAX = 6 * MIB - 64 * KIB  # one record alone: Lambda's answer of 6 MB can carry it

# Fetch.
FETCH_BYTES_DEFAULT_MAX = 1 * MIB
FETCH_BYTES_MAX = REQUEST_BYTES_MAX
FETCH_WAIT_MS_MAX = 20_000  # API Gateway ends a call after 30 s
FETCH_REFS_MAX = 256  # ranged gets that one fetch may need at most
OFFSET_SEARCH_PAGES_MAX = (
    5_000  # of the index, read in one call that searches by time: 80,000 refs and some 300 queries
)
OFFSET_SEARCH_BYTES_MAX = 256 * MIB  # decoded in one call that searches by time: about a second of a function's CPU
OFFSET_SEARCH_ATTEMPTS_MAX = 20  # searches of one partition by time; retention may overtake each of them
FETCH_POLL_MS_MIN = 10  # a fetch that waits reads the heads again after this time, then after longer ones,
FETCH_POLL_MS_MAX = 1_000  # up to this: a record is found that much later at most

# Filters. The service evaluates them for each record, so these bound the work per byte of headers (docs/adr/0038).
FILTER_BYTES_MAX = 4 * KIB  # of a policy as JSON
FILTER_KEYS_MAX = 16  # conditions on headers in one policy, all alternatives together
FILTER_VALUES_MAX = 150  # texts and numbers in one policy, all conditions together
FILTER_NESTING_MAX = 3  # alternatives inside alternatives
FILTER_NUMBER_BYTES_MAX = 32  # of a header that is read as a number, and of a number in a policy
FILTER_HEADERS_MAX = 1_000  # of a record that a filter looks at, as many as JSON carries
FILTER_WORK_MAX = 500_000  # records and headers that one fetch filters: some 10 s of CPU for the slowest policy
FILTER_DECODED_BYTES_MAX = 32 * MIB  # decoded by one fetch with a filter, and the rest of the batch that spends it
READ_DECODED_BYTES_MAX = 32 * MIB  # decoded by one read of a share group, a subscription or a redrive, as above
FILTER_SCAN_BYTES_MAX = 16 * MIB  # of segments that one fetch with a filter reads
FILTER_SCAN_PAGES_MAX = 256  # of the index, for refs that one fetch passes over by their tags: 4,096 refs

# Wake-ups.
WAKE_UP_MS_MAX = 50  # that an append waits for its wake-ups during its other work; a lost one costs delay, not data
WAKE_UP_PARTITIONS_MAX = 5  # of one topic in one request: more share a message on the topic's channel

# Access rules. All of them are one item, which an instance loads at once.
ACL_RULES_MAX = 5_000  # of a stage
ACL_ITEM_BYTES_MAX = 320 * KIB  # of all rules, compressed: DynamoDB takes 400 KB
ACL_DECODED_BYTES_MAX = 8 * MIB  # of all rules: 5,000 of the longest take less
ACL_ATTEMPTS_MAX = 10  # of one change, while other requests change the rules
ACL_CHANGES_MAX = 100  # rules in one request
ACL_LIST_MAX = 1_000  # in one page
ACL_PRINCIPAL_LENGTH_MAX = 512
ACL_PRINCIPALS_REMEMBERED_MAX = 1_000  # whose rules one instance has sorted
ACL_AGE_MS_MAX = 10_000  # of the rules by which an instance decides, then it asks whether they have changed
ACL_OUTAGE_MS_MAX = 30_000  # of the rules, while the table cannot be read: then requests are refused

# Names and topics.
NAME_LENGTH_MAX = 249  # as Kafka
TOPIC_PARTITIONS_MAX = 1_000  # creation writes a head for each
TOPICS_MAX = 10_000  # of a stage: a list of topics, retention and the sweep read them all
TOPIC_LIST_MAX = 1_000  # topics in one page of the list
MIN_INSYNC_ZONES_DEFAULT = 2  # the majority of three zones
ZONES_MAX = 8  # bits of a ref's bitmap

# Retention. A topic keeps records for a time and up to a size, each of which may be unlimited (-1).
UNLIMITED = -1
RETENTION_MS_DEFAULT = 14 * 24 * 3_600_000
RETENTION_MS_MIN = 60_000
RETENTION_MS_MAX = 100 * 365 * 24 * 3_600_000
RETENTION_BYTES_MIN = 1 * MIB
RETENTION_BYTES_MAX = 2**50
DELETE_RETENTION_MS_DEFAULT = 24 * 3_600_000
VALUE_SCHEMA_LENGTH_MAX = 1_000  # of a topic's setting: the longest key of S3 that people write
OPEN_ATTEMPTS_MAX = 5  # of one call to open a generation that others alter meanwhile
DRAIN_MS_MIN = 3_600_000  # a closed partition stays so long: more than a transaction, or any retry, may take
LOG_START_GRACE_MS = 60_000  # a function that reads runs 30 s at most, and clocks may differ a little
ACKNOWLEDGED_MS_MIN = 44 * 60_000  # that passed records stay: with 15 minutes between two runs, an hour at most
READERS_SETTLED_MS = 60_000  # from `retention=acknowledged` on: an instance remembers a topic 10 s, and clocks differ
PASSED_HEADS_MAX = 1_000  # partitions for which one read of all readers serves: their heads must not age
HEADS_AT_ONCE = 100  # partitions in one read of heads: DynamoDB's BatchGetItem takes 100 keys
SWEEP_LIVE_MAX = 2_000_000  # segment ids in memory, about 110 bytes each
SWEEP_PARTITIONS_AT_ONCE = 32  # partitions that are marked side by side, between two looks at the time
SWEEP_CYCLE_MS_MAX = 7 * 24 * 3_600_000  # a sweep that has not ended by then begins anew
SWEEP_FOLDERS_AT_ONCE = 8  # of the 256 of an ordinary bucket, between two saves of the sweep's cursor
SWEEP_GRACE_MS = 24 * 3_600_000  # far longer than any function may take between its put and its update
TIERED_SWEEP_GRACE_MS = 12 * 3_600_000  # where zones are directory buckets: moved bytes leave them within a day
RETIRED_KEPT_MS = 48 * 3_600_000  # for how long a swap's note of old segments stays: a sweep's grace cannot be longer

# Schedules. The run of each minute reads them all: at most 8 MB, or 0.0003 dollars.
SCHEDULES_MAX = 1_000  # of a stage
SCHEDULE_RECORD_BYTES_MAX = 8 * KIB  # of key, value and headers together
SCHEDULE_CRON_LENGTH_MAX = 200  # characters of the expression
SCHEDULE_LIST_MAX = 100  # schedules in one page: with their records they stay below 1 MB
SCHEDULES_AT_ONCE = 25  # schedules of one partition in one transaction, as one batch
SCHEDULE_AHEAD_MS = 75_000  # a run sends messages for what is due so soon: the next run comes a minute later
SCHEDULE_AGAIN_MS = 4_000  # behind each due time, another message finds what a run that died has left
SCHEDULE_LATE_MS = 120_000  # a run that comes so late has missed the run of a minute: it counts for an alarm

# Groups.
COMMIT_OFFSETS_MAX = 1_000  # offsets in one commit
COMMIT_METADATA_BYTES_MAX = 4 * KIB  # as Kafka
COMMIT_OFFSET_MAX = 2**53 - 1  # 285 years of a million records a second; JSON clients lose digits above
JUMP_MARGIN_OFFSETS = 1_000  # of a restored log, beyond the harmed one: for appends that came after it was read
LOST_HEAD_JUMP_OFFSETS = 2**30  # where the harmed head is lost: 5 weeks of 300 records a second
JUMP_OFFSETS_MAX = 2**31 - 1  # of one ref: its empty batch has its last offset delta as i32
LEADER_EPOCH_MAX = 2**31 - 1  # Kafka has it as i32
OFFSET_MAX = 2**63 - 1  # a batch header has it as i64
GROUP_MEMBERS_MAX = 2_000
MEMBER_ID_LENGTH_MAX = 100  # characters: a target writes its length in one byte
CLIENT_ID_LENGTH_MAX = 100
SUBSCRIPTION_NAMES_MAX = 10_000  # topics and patterns of one member: all topics that a stage may have
SUBSCRIPTION_BYTES_MAX = 256 * KIB  # a member's item holds them, and each of its heartbeats writes it
OWNED_PARTITIONS_MAX = 100_000  # that one heartbeat names as held by its member
SESSION_TIMEOUT_MS_DEFAULT = 45_000
SESSION_TIMEOUT_MS_MIN = 2_000
SESSION_TIMEOUT_MS_MAX = 30 * 60_000
HEARTBEAT_INTERVAL_MS_DEFAULT = 5_000
HEARTBEAT_INTERVAL_MS_MIN = 250
HEARTBEAT_SEQUENCE_AHEAD_MS_MAX = 24 * 3_600_000  # a sequence is a count, or a clock in ms that may be so far ahead
HEARTBEATS_PER_SESSION_MIN = 3  # one lost or throttled heartbeat costs no member a partition
WAITING_HEARTBEAT_MS = 1_000  # a member that waits for another to release asks again so soon
YOUNG_HEARTBEAT_MS = 400  # of members of a young group: a second member gets its part after two of them at most
YOUNG_GROUP_MS = 60_000  # for so long after it was made
YOUNG_GROUP_MEMBERS_MAX = 10  # a larger group does not come so often: all members read one item
ACQUIRE_MAX = 100  # leases that one heartbeat acquires: DynamoDB's BatchGetItem takes 100 keys
GROUP_CHECK_MS_MAX = 30_000  # new topics and partitions may go unnoticed so long
GROUP_CHECK_MS_MIN = 1_000
GROUP_PATIENCE = 10  # who waits for a generation of partitions looks again after this part of the wait
OFFSETS_RETENTION_MS_DEFAULT = 90 * 24 * 3_600_000
OFFSETS_RETENTION_MS_MIN = 60_000
OFFSETS_RETENTION_MS_MAX = 100 * 365 * 24 * 3_600_000
GROUP_NAMES_AT_ONCE = 1_000  # names of groups that one query of a list reads
GROUP_LIST_MAX = 100  # groups in one page of the list
GROUP_PAGE_MAX = 1_000  # offsets, or members and partitions together, in one page of a group
REBALANCE_ATTEMPTS_MAX = 5  # other function instances may change the group in between
GROUP_CHECK_CLAIM_MS = 10_000  # a check that did not end by then is begun again by another heartbeat
SUBSCRIPTION_LOOK_UPS_MAX = 20  # topics that a rebalance reads one by one; more are read with all topics
ENROL_ATTEMPTS_MAX = 3  # puts of a member's item; heartbeats of the same member may change it in between
OFFSET_RESET_ATTEMPTS_MAX = 5  # resets of one lease, and rounds that expel members
GROUP_DOCUMENT_BYTES_MAX = 64 * KIB  # of a group whose leader assigns: each change writes its item anew
PROTOCOL_TYPE_LENGTH_MAX = 100  # characters of what the members of such a group are
GROUP_DELETE_ROUNDS_MAX = 3  # rounds that delete leases; consumers may commit in between
TARGET_CHUNK_BYTES = 300 * KIB  # of a target assignment, in one item of 400 KB at most

# Share groups.
SHARE_NONCE_LENGTH_MIN = 8  # characters: 48 bits keep the live locks of one partition apart
SHARE_NONCE_LENGTH_MAX = 22  # characters, as 16 bytes have in base64: each lock stores its id twice
SHARE_LOCK_NAME_LENGTH_MAX = 12  # characters of a consumer's name in a nonce, before its random part
SHARE_HOLDERS_MAX = 20  # consumers with locks that a description tells for each partition
SHARE_LOCKS_MAX = 64  # of one partition in one share group, for acquires of fresh records
SHARE_LOCKS_ALL_MAX = 256  # of one partition in one share group, those of records that came back included
SHARE_WAITS_MAX = 256  # of one partition in one share group: with more, entries are merged whatever their times
SHARE_WAITS_BLIND_MAX = 64  # with more, an acknowledgement reads the item, and merges what it adds into a like entry
SHARE_ITEM_BYTES = 12 * KIB  # a share item as large as this gives no fresh records: a write costs a unit for each KiB
SHARE_MERGE_BYTES = 2 * KIB  # from this size on, an acquire merges entries that wait for about the same time
SHARE_ENTRIES_MAX = 16  # entries that one update of a share item touches: DynamoDB's expressions have 4 KiB
SHARE_RECORDS_MAX = 500  # of one acquire
SHARE_RECORDS_DEFAULT = 100
SHARE_KEY_RECORDS_MAX = 100  # of one acquire by key: their keys' hashes are in the share item
SHARE_RANGES_MAX = 512  # that one entry holds: records that alternate within SHARE_RECORDS_MAX, and some merged ones
SHARE_SUSPECT_PARTS = 8  # into which an expired lock is split: one of its records may kill workers
SHARE_REASON_BYTES_MAX = 200  # of a reject or a release
SHARE_REASON_KEPT_BYTES = 64  # of a release whose records come again: the share item keeps so much of its reason
SHARE_REASON_RANGES_MAX = 4  # of one such reason
SHARE_REASONS_MAX = 22  # in one share item: 2 KiB with their ranges
SHARE_ROOM_RETRY_MS = 200  # an acquire that found no room is tried again after this
SHARE_BURIALS_MAX = 8  # transactions that move dead letters, after one call
SHARE_TOKEN_BYTES_MAX = 64  # of a lock that travels in its lock id, so that one write acknowledges it
SHARE_LOCK_MS_DEFAULT = 30_000
SHARE_LOCK_MS_MIN = 1_000
SHARE_LOCK_MS_MAX = 12 * 3_600_000
SHARE_DELIVERIES_DEFAULT = 5  # of groups with a dead-letter topic; groups without one have no bound
SHARE_DELIVERIES_MIN = 1
SHARE_DELIVERIES_MAX = 1_000
SHARE_BACKOFF_MS_MIN = 1  # of each of the two settings
SHARE_BACKOFF_MS_MAX = 12 * 3_600_000
SHARE_BACKOFF_FIRST_MS_DEFAULT = 1_000
SHARE_BACKOFF_LAST_MS_DEFAULT = 600_000
SHARE_DELAY_MS_MAX = 12 * 3_600_000  # of a release
SHARE_IN_FLIGHT_MIN = 1
SHARE_IN_FLIGHT_MAX = 20_000
SHARE_KEY_IN_FLIGHT_MAX = 500  # with order by key: 4 bytes of the share item each
SHARE_KEY_BATCH_MIN = 1
SHARE_KEY_BATCH_MAX = 100
SHARE_ACKNOWLEDGEMENTS_MAX = 100  # in one request
SHARE_ATTEMPTS_MAX = 8  # updates of one share item by an acknowledgement; other writers may come between
SHARE_ACQUIRE_ATTEMPTS_MAX = 4  # updates of one share item by an acquire: then it looks elsewhere
SHARE_KEY_ATTEMPTS_MAX = 2  # of an acquire by key, which reads the fresh records for each
SHARE_LOOKS_FIRST = 4  # partitions that an acquire looks at first; then four times as many, and so on up to 100
SHARE_LOOK_MS_MAX = 5_000  # that one acquire spends on looking at partitions
SHARE_WINDOW_RECORDS = 500  # that an acquire by key reads ahead
SHARE_WINDOW_BYTES = 4 * MIB  # of them as stored
SHARE_FILTER_REACH_MAX = 16  # an acquire whose filter took nothing locks so many times its records at once
SHARE_READ_BYTES_MAX = 16 * MIB  # of segments, that one acquire reads
SHARE_UNREAD_PAUSE_MS = 1_000  # records that cannot be read wait so long at least
SHARE_WATCHED_MAX = 100  # partitions that a waiting consumer of a share group arms, as a fetch does
SHARE_TOPICS_MAX = 100  # of one share group
SHARE_LISTED_TOPICS_MAX = 8  # with topic_order=listed: an acquire looks at all partitions of one before the next
SHARE_LISTED_PARTITIONS_MAX = 100  # of all these topics: one read of heads and states covers them
SHARE_CHOSEN_WORK_MS = 250  # that an SDK consumer holds of a group with priorities or fair sharing
SHARE_FAIR_RECORDS = 20_000  # with sharing=fair: fresh records ahead whose tenants an acquire may know
SHARE_FAIR_BYTES = 8 * KIB  # a share item as large as this keeps no more records back: acquires take in order
SHARE_FAIR_WAITS_MAX = 128  # with so many waits, too
SHARE_FAIR_WAIT_RANGES = 24  # of one wait: acquires at the same time take of different ones
SHARE_FAIR_RANGE_BYTES = 4  # that one more range of records that are kept back takes in the item
SHARE_FAIR_BY_LENGTH_MAX = 128  # characters of a header's name
SHARE_FAIR_OLDEST_EACH = 64  # one acquire in so many takes the oldest records of all tenants: none waits for ever
SHARE_LEFT_TOPICS_MAX = 1_000  # that one share group read before, until retention has removed its states there
SHARE_GROUP_LIST_MAX = 100  # share groups in one page of the list
MOVED_BYTES_MAX = REQUEST_BYTES_MAX  # of one batch of dead letters: their headers may exceed what a topic takes
DEAD_LETTER_RANGES_MAX = 10_000  # of open letters that one answer tells
REDRIVE_RECORDS_MAX = 500  # that one call moves
REDRIVE_AT_ONCE = 90  # in one transaction, of 100 actions at most: each record may have a target of its own
REDRIVE_LOOKS_MAX = 100  # transactions of one call
REDRIVE_MS_MAX = 15_000  # one call begins no further transaction after this
REDRIVE_SCAN_RECORDS = 1_000  # that one of them looks at
REDRIVE_ENTRIES = 4  # of the hidden share item, that one of them may change: an update touches SHARE_ENTRIES_MAX
REDRIVE_ITEM_BYTES = 128 * KIB  # of the hidden share item of a partition: some 40,000 runs of letters that stayed
SHARE_BEGINS_MAX = 99  # states that one transaction begins, with a condition on their group
SHARE_BEGIN_ATTEMPTS_MAX = 5  # of such a transaction, while others begin some of the states
DEAD_LETTER_BURIALS_MAX = (
    10  # one record has no more: dead-letter topics whose groups bury into each other are a circle
)
DEAD_LETTERS_AT_ONCE = 100  # records that one transaction moves to a dead-letter topic

# Subscriptions.
PUSH_LOCK_MS = 65_000  # of a lane: longer than the function `deliver` may run
PUSH_VISIBILITY_MS = 75_000  # a message whose delivery died comes again: soon after its lock ends
PUSH_MESSAGE_AGE_MS_MAX = 14 * 24 * 3_600_000  # SQS keeps a message no longer
PUSH_STUCK_MS = 3_600_000  # a partition that fails so long rings an alarm, however patient its subscription is
PUSH_ORPHANS_MS = 3_600_000  # states without a subscription go after that: no creation or delivery lasts so long
DISPATCH_LATE_MS = 60_000  # after a write, a wake-up of subscriptions is late: the alarm functions-failing counts it
PUSH_SLICE_MS = 10_000  # of a delivery: then it begins no invocation, and another delivery goes on
PUSH_TARGET_MS = 50_000  # a target answers within this time; with a slice it is less than the function may run
PUSH_READ_AHEAD_BYTES = 2 * MIB  # of segments, that are read at once for several batches
PUSH_READS_MAX = 5  # of the same batch, whose deliveries have died while they read it: then it is passed over
PUSH_RECEIPT_RETRY_MS = 5_000  # a message comes again so soon after its delivery failed
PUSH_WINDOW_LOOK_MS = 1_000  # between two looks at a batch that waits for more records: SQS counts in seconds
PUSH_WINDOW_LOOKS_MAX = 16  # at one batch
PUSH_UNREADABLE_PAUSE_MS = 30_000  # a partition rests so long before a record that cannot be read
PUSH_ROOM_PAUSE_MS_MIN = 5_000  # a lane in parallel mode that finds no room looks again after this, at the soonest
PUSH_ROOM_PAUSE_MS_MAX = 60_000  # and at the latest
PUSH_HOPS_MAX = 3  # copies of a record from topic to topic
PUSH_PAUSE_MS_MAX = 11 * 3_600_000  # SQS hides a message for 12 h at most after its receipt
PUSH_PAYLOAD_BYTES_MAX = 6 * MIB  # of one delivery: Lambda takes no more in a synchronous invocation
PUSH_ENTRIES_MAX = 10  # of one SendMessageBatch and of one PutEvents
PUSH_CALLS_AT_ONCE = 8  # of one delivery to a queue or a bus
PUSH_CALL_MS_MAX = 10_000  # of one such call: two attempts of 4 s each, and the pause between them
QUEUE_BYTES_MAX = 1 * MIB  # of one message, with its attributes, and of all messages of one call: SQS takes no more
QUEUE_ATTRIBUTES_MAX = 10  # of one message
BUS_BYTES_MAX = 1_000_000  # of one event, and of all events of one call: EventBridge takes no more than "1 MB"
PUSH_ERROR_LENGTH_MAX = 500  # characters of a target's answer that the state keeps
PUSH_SUBSCRIPTIONS_MAX = 1_000  # of a stage: a creation counts them, and the look of each five minutes reads them all
PUSH_LIST_MAX = 100  # subscriptions in one page of the list
PUSH_TOPICS_MAX = 40  # of one subscription
PUSH_BATCH_RECORDS_DEFAULT = 100
PUSH_BATCH_RECORDS_MAX = 10_000
PUSH_BATCH_WINDOW_MS_MAX = 300_000
PUSH_CONCURRENCY_DEFAULT = 10
PUSH_CONCURRENCY_MAX = 1_000
PUSH_ATTEMPTS_DEFAULT = 5  # of subscriptions with a dead-letter topic; those without one have no bound
PUSH_ATTEMPTS_MAX = 1_000
PUSH_BACKOFF_FIRST_MS_DEFAULT = 1_000
PUSH_BACKOFF_LAST_MS_DEFAULT = 600_000
PUSH_BACKOFF_MS_MAX = PUSH_PAUSE_MS_MAX
PUSH_EVIDENCE_MARGIN_MS = 1_000  # a success counts if it began so much later than a failure: clocks differ
PUSH_PROOF_PAUSE_MS = 20_000  # of a record that waits for a proof, in parallel mode: longer than the margin and a note
PUSH_SUCCESS_NOTE_MS = 5_000  # a lane in parallel mode notes its successes so often
PUSH_PATIENCE_MS_DEFAULT = 900_000  # records wait so long for a target that has no success at all
PUSH_PATIENCE_MS_MAX = 14 * 24 * 3_600_000
PUSH_AGE_MS_MAX = 365 * 24 * 3_600_000
MIRROR_PUSH_BYTES = BATCH_BYTES_MAX  # of batches in one push to a mirror: its request has room for their header
MIRROR_LOCK_MS = 3_000  # of a lane that pushes to a mirror: its holder renews it, and one that died costs no more
MIRROR_HIDE_MS = 4_000  # the message of a delivery that died comes again: soon after its lock ends
MIRROR_RENEW_MS = 1_000  # between two renewals
MIRROR_LANES = 6  # `concurrency` of a new mirror: the fewer lanes, the more partitions share a delivery
MIRROR_REST_PARTITIONS = 2  # of a lane to a mirror that rests between two deliveries
MIRROR_REST_MS = 1_000  # from one delivery to the next one of a lane that rests: it gathers records meanwhile
MIRROR_LIVELY_MS = 3_000  # a lane rests if its last push is younger: then a look costs less than the next wake-up
MIRROR_BACKOFF_MS_MAX = 10_000  # `backoff_ms_max` of a new mirror: it is so much behind after its target was away
MIRROR_DIVERGED_MS = 60_000  # between two pushes to another log, until an operator ends that
MIRROR_ATTEMPTS_MAX = 3  # of one push, at a topic that is deleted and made anew meanwhile
MIRROR_PUSH_REFS = 48  # a mirror appends them by one update: the item of its head stays small
MIRROR_PUSH_PRODUCERS = 16  # whose entries one update sets: DynamoDB takes 4 KB of expressions
MIRROR_LATE_MS = 300_000  # a mirror that lacks an older record rings an alarm
MIRROR_OFFSETS_BYTES = 128 * KIB  # of the offsets of groups in one telling: an item of DynamoDB has 400 KB
MIRROR_OFFSETS_MS = 10_000  # between two tellings of a topic, while its pushes run
MIRROR_OFFSETS_REST_MS = 50_000  # longer, while groups commit and nothing is pushed
MIRROR_OFFSETS_GROUPS = 1_000  # of a stage, whose offsets a telling reads
MIRROR_TIMERS_MS = (
    10_000  # between two passes over the delayed records that wait in a mirrored topic, if there are some
)
MIRROR_TIMERS_PARTITION_MS = 1_000  # between two passes, for each partition: 8 queries look at it
MIRROR_TIMERS_PART_MS = 1_000  # between two parts of a pass
MIRROR_TIMERS_EACH_MS = 5  # between two passes, for each timer that waits: all of them are read
MIRROR_TIMERS_READ = 900  # in one comparison with the mirror
MIRROR_TIMERS_CHUNKS = 4  # comparisons and looks at partitions with timers, in one turn of a delivery
MIRROR_TIMERS_PUT = 100  # copies in one request: each is a write of its own
MIRROR_TIMERS_DIGESTS = 200  # partitions with timers whose digest is kept: others are compared in each pass
MIRROR_TIMERS_COMPARED_MS = 24 * 3_600_000  # between two passes that compare all partitions, whatever their digests
MIRROR_TIMERS_OTHERS = 4_000  # copies that the mirror looks at in one comparison
MIRROR_TELLING_MS_MAX = 3_600_000  # a mirror takes no copies that were read before that: their marks last for a day
MIRROR_TOLD_KEPT_MS = 30 * 24 * 3_600_000  # notes of copies, from the due time on: a delivery must not be later
MIRROR_OFFSETS_GROUP_MS = 100  # between two tellings, for each group: so it reads 10 groups a second at most
PUSH_URL_LENGTH_MAX = 2_048  # characters
PUSH_ADDRESSES_MAX = 4  # of an endpoint's host that are tried, one after the other
PUSH_ANSWER_BYTES_MAX = 1 * MIB  # of an endpoint: room for the names of 10,000 records that failed
WEBHOOK_SECRET_BYTES_MIN = 24  # of the random bytes behind a secret's base64: both as Standard Webhooks says
WEBHOOK_SECRET_BYTES_MAX = 64
WEBHOOK_SECRETS_MAX = 2  # the new one and the old one, while you change it
WEBHOOK_TOLERANCE_S = 300  # a receiver's clock and the time of an attempt may differ by so much

# The index.
TAIL_ROLL_REFS = 16  # a roll moves exactly so many refs to a page (format: a tail base has one possible page)
LONG_TAIL_ROLL_REFS = 4  # in a tail of twice that length, each multiple of this starts a roll
ROLL_PAGES_MAX = 8  # pages that one append rolls at most: its caller waits for two writes each
ROLL_ATTEMPTS_MAX = 4  # of an append, at its rolls, and at its evictions; a repair or another writer may come between
ROLL_BACKOFF_MS_MAX = 50.0  # between two attempts: the append's caller waits
PAGE_PUT_MS_MAX = 30_000  # from a roller's read of the head to its put of a page: as long as a function runs
MERGE_MARK_KEPT_MS = 7 * 24 * 3_600_000  # a page that was merged leaves a mark: far longer than a put may be late

# Reading the index: how many pages one query asks for. A page has 16 refs as a rule and is about 1 KiB: a read unit of
# DynamoDB pays for 4 pages. A query answers 1 MB at most.
INDEX_LOOK_PAGES = 4  # one read unit: callers stop after one ref, or save a cursor after 64 or 128 of them
INDEX_FETCH_PAGES = 16  # FETCH_REFS_MAX refs: one query finds all that one fetch may read
INDEX_EXPIRY_PAGES = 25  # a run of retention removes a few pages of a partition, and mostly reads one in vain
INDEX_RUN_PAGES = 64  # the pages of a whole run of compaction (COMPACTION_RUN_PAGES_MAX), or of a job's plan
REPEAT_PAGES_MAX = 10_000  # read for the place of one repeat: 160,000 refs and 100 queries, about a second
INDEX_REPEAT_PAGES = 100  # 1,600 refs: a repeat older than the tail is rare, and one query finds it mostly
INDEX_MARK_PAGES = 500  # the sweep reads the whole index: half of what a query may answer, for few queries
INDEX_READS_MAX = 2  # reads that must meet a gap before it counts: one query may see a half of a swap

# Idempotent producers, per partition.
APPEND_ATTEMPTS_MAX = 5  # updates of one append; new producers may make the head forget others in between
HEAD_PRODUCERS_KEPT = 20  # stay in the head when an eviction moves the longest silent ones out
EVICTION_PRODUCERS_MIN = 12  # beyond those: so many producers more start an eviction
EVICTION_PRODUCERS_MAX = 16  # leave the head in one update: its expressions are far from DynamoDB's bounds
EVICTION_RETRY_PRODUCERS = 4  # producers more, and an eviction is tried again
PRODUCER_EPOCH_MAX = 2**15 - 1  # as batch headers have it
PRODUCER_KEPT_MS = 7 * 24 * 3_600_000  # a producer that was moved out is remembered so long

# Compaction and the archive tier.
ARCHIVE_SEGMENT_BYTES = 64 * MIB
ARCHIVE_REF_BYTES = FETCH_BYTES_DEFAULT_MAX  # so that a fetch of the default size reads one ref
ARCHIVE_REF_MS_MAX = 24 * 3_600_000  # of records in one ref: retention removes whole refs
COMPACTION_AGE_MS_DEFAULT = 3_600_000  # pages with younger segments are left alone
COMPACTION_REFS_MIN_DEFAULT = 32  # fewer are not worth a rewriting
TIERING_MS_MAX = 4 * 3_600_000  # a page or a tail in the zones is moved to the archive at this age, whatever its refs
TIERING_PORTION_MS = 60_000  # of a run, for one partition in its turn
STALE_MS = 8 * 3_600_000  # bytes that lie in zones for longer will not be gone within a day: an alarm rings
COMPACTION_RUN_PAGES_MAX = 64  # with half as many new ones and the lease: DynamoDB takes 100 actions
COMPACTION_SWAP_ATTEMPTS_MAX = 3  # a repair that sets a zone's bits meanwhile makes one fail
COMPACTION_WINDOW_BYTES = 8 * MIB  # read ahead of the upload
COMPACTION_WINDOW_REFS = 64  # refs in one window at most: each may need a get
COMPACTION_DIRTY_SHARE_DEFAULT = 0.5  # of the bytes: with fewer that were never cleaned, cleaning is not worth it
COMPACTION_KEYS_MAX_DEFAULT = 1_000_000  # keys in memory, about 170 bytes each
COMPACTION_PAGE_KEYS = 3_000_000  # that one page may add to them: a few hundred KB can hold a million
COMPACTION_BYTES_PER_DAY_DEFAULT = 8 * 1024 * MIB  # of logs that the task `clean` cleans: under $0.50 a month of Lambda
CLEANING_LATE_MS = 48 * 3_600_000  # a log that waits for longer to be cleaned rings an alarm
COMPACTION_LEASE_MS = 300_000  # longer than the rewriting of one segment takes; each swap extends it
COMPACTION_RUN_MS_MAX = 3_600_000  # from a segment's id to its swap: far less than the sweep's grace
MERGED_SEQUENCES_KEPT_MS = 7 * 24 * 3_600_000  # repeats of merged appends find their first offset so long

# Zones and repair.
PUT_TIMEOUT_MS = 3_000  # a put that has not answered by then has failed for its request
FALLBACK_AFTER_MS = 500.0  # a put to a fallback zone begins when those to other zones take longer: 40 times their p99
APPEND_MS_MAX = 20_000  # from a segment's id to an update that names it, by either clock: then it is put again
FAILED_PUTS_MAX = 2  # in a row, of one function instance: then it takes the zone out of sync
REPAIR_DELAY_MS = 12_000  # a zone that has not confirmed an append by then needs a copy
LOOK_RANGES_MAX = 25  # ranges of partitions in one message
LOOK_MS_MAX = 5_000  # of a run of `replicate`: what is left then waits for another one
REPAIR_STREAM_LATE_MS = 600_000  # after a write, the look of `replicate` is late: the alarm functions-failing counts it
REPORT_INTERVAL_MS = 60_000  # a function instance reports one bad copy once in this time
SCRUB_BYTES = 1024 * MIB  # a run of the scrub reads about so many
SCRUB_SAVE_REFS = 64  # refs between two saves of the scrub's cursor: a run that dies reads so many again
CATCH_UP_PORTION_REFS = 128  # refs between two saves of a catch-up pass
CATCH_UP_COPIES_AT_ONCE = 8  # segments copied side by side: each may ask the pool of threads for two more calls
ZONE_MOVE_ATTEMPTS_MAX = 3  # each but the first meets another change of a zone's state
REPORTS_REMEMBERED_MAX = 10_000  # bad copies that an instance reports in that time at most

# Transactions. DynamoDB takes 100 actions in one: the producer's own, and these.
TRANSACTION_PARTS_MAX = 99  # partitions and offsets together
TRANSACTION_BEGIN_ATTEMPTS_MAX = 5  # other function instances may begin the same producer in between
TRANSACTION_BEGINS_KEPT = 8  # nonces of the last begins: a late repeat of one of these fences nobody
TRANSACTION_COMMIT_ROUNDS_MAX = 3  # of one commit: a topic was made anew, or a lease has no owner any more
TRANSACTION_STAGES_MAX = 64  # parts of its data that are put before the last one
TRANSACTION_MS_MAX = 15 * 60_000  # from its first stage to its commit: far less than the sweep's grace
TRANSACTIONAL_ID_KEPT_MS = 90 * 24 * 3_600_000  # after its last begin or commit (docs/protocol/transactions)
TRANSACTIONAL_ID_RENEWED_MS = 24 * 3_600_000  # before its end: a stage puts the end off

# Delayed records. DynamoDB takes 100 actions in one transaction: the head, and these.
TIMER_DELAY_MS_MAX = 365 * 24 * 3_600_000
EXPIRES_IN_MS_MAX = 10 * 365 * 24 * 3_600_000  # of a record: longer than the waits of any queue, and 13 digits for ever
TIMER_MS_MAX = 10**15 - 1  # a due time has 15 digits in its key: the year 33658
TIMER_PAST_MS_MAX = 15 * 60_000  # a due time may lie so far back: clocks differ, and retries take time
TIMER_MARK_KEPT_MS = 24 * 3_600_000  # after a delivery: far longer than a retry of the put may be late
TIMER_MINUTE_KEPT_MS = 30 * 60_000  # an index item outlives its minute: a late timer, and clocks 5 minutes apart
TIMER_ORPHAN_MS = 24 * 3_600_000  # timers of a partition without a head are deleted so long after their due time
TIMERS_PER_MINUTE_MAX = 90_000  # of one partition: 1,500 a second
TIMERS_RESERVED = 100  # at once by one instance, which may use fewer
TIMERS_PROMOTED_MAX = 90  # in one transaction
TIMERS_READ_MAX = 900  # at once by a promotion: ten transactions
TIMER_SHARDS = 8  # keys that share the timers of a partition (format: an id has one shard)
TIMER_INDEX_SHARDS = 16  # keys of the index of due minutes, over which the minutes go round
TIMER_MESSAGE_MS_MAX = 15 * 60_000  # SQS delays a message so long
TIMER_EARLY_MS_MAX = 1_500  # a message that comes so early waits in its function; another one is sent for later times
TIMER_SKEW_MS = 500  # a timer put so shortly before its message comes due sends another message
PROMOTE_TAIL_REFS_MAX = 512  # a longer tail must roll before timers are appended to it
PROMOTE_ATTEMPTS_MAX = 5  # transactions in a row that are refused while the same timer stays the first
PROMOTE_BACKOFF_MS_MAX = 1_000.0  # of a promoter that another one has overtaken
SCHEDULED_PAGE_MAX = 1_000  # timers in one page of the list
SCHEDULED_PARTITIONS_MAX = 100  # partitions that one page looks at, 8 queries for each

# DynamoDB's own limits, which the adapters in memory hold too.
ITEM_BYTES_MAX = 400 * KIB
TRANSACTION_ACTIONS_MAX = 100  # in one transaction
EXPRESSION_BYTES_MAX = 4 * KIB
EXPRESSION_OPERATORS_MAX = 300  # operators and functions of one update

# Calls to storage.
STORAGE_ATTEMPTS_MAX = 5  # tries of one call to DynamoDB, and of one batched read whose keys stay unprocessed
STORAGE_BACKOFF_MS_MAX = 200.0  # between two attempts: a caller waits for all of them
STORAGE_REPEAT_MS_MAX = 10_000  # a write is sent again within this time of its first attempt, or not at all
STORAGE_IDLE_CONNECTION_MS_MAX = 20_000  # then it may be dead: AWS has closed it, or a freeze has ended it
STORAGE_CONNECTIONS_MAX = 32  # to DynamoDB and to S3 each: as many as an instance has threads
TRANSACT_ATTEMPTS_MAX = 10  # tries of one transaction while other writers hold its items
BATCH_GET_KEYS_MAX = 100  # keys in one BatchGetItem: DynamoDB takes no more
BATCH_WRITE_KEYS_MAX = 25  # keys in one BatchWriteItem: DynamoDB takes no more
MARK_ATTEMPTS_MAX = 5  # at setting a ref's bits, while appends and rolls change its head or page
MERGED_QUERIES_MAX = 8  # for one repeat of a merged append, 1 MB each: a produce waits for them
DELETE_SEGMENTS_MAX = 1_000  # in one call: S3's DeleteObjects takes no more
LIST_KEYS_MAX = 1_000  # in one call: S3's ListObjectsV2 answers no more
ARCHIVE_PARTITION_VALUES_MAX = 1_000  # of the columns of --partition-by in one task: each makes a file for each day
ARCHIVE_PART_BYTES = 8 * MIB  # one part of an upload: S3 takes 5 MiB to 5 GiB, and the last may be smaller

# The memory and the threads of one function instance. Maps by zone have ZONES_MAX entries.
INSTANCE_TOPICS_MAX = 10_000  # in the cache of topics, about 1 KiB each
INSTANCE_TARGETS_MAX = 16  # target assignments in the cache of groups, up to a few hundred KiB each
INSTANCE_GROUPS_MAX = 10_000  # share groups that the instance remembers
INSTANCE_SEGMENTS_MAX = 2_000_000  # ids of segments that it has seen zones hold, about 110 bytes each
INSTANCE_THREADS_MAX = 32  # for calls side by side
INSTANCE_LANE_THREADS_MAX = 32  # for the calls to one zone, which may hang until their timeout
INSTANCE_TIMER_MINUTES_MAX = 20_000  # minutes of partitions in which the instance has room for timers
INSTANCE_TIMER_SECONDS_MAX = 20_000  # seconds of partitions for which it has sent a message
INSTANCE_LOG_ENTRIES_MAX = 1_000  # entries of one request or run; further ones are counted only
LISTED_KEYS_MAX = 32_000  # that one look at the zones' lists takes, so that it ends within seconds
EXPLAINED_MISTAKES_MAX = 20  # mistakes of one request, so that the answer stays within 6 MB

# Metrics. CloudWatch bills each series, and each consumer that is measured costs reads each minute (docs/adr/0045).
METRIC_TOPICS_MAX = 100  # topics with series of their own, as a setting may have them
METRIC_CONSUMERS_MAX = 100  # groups, share groups and subscriptions together, likewise
METRIC_ZEROS = 15  # minutes of zeros behind the last lag: target tracking scales in after 15 of them
METRIC_RANK_MS = 300_000  # the topics with series of their own are chosen again so often while there are places
INSTANCE_READS_BYTES_MAX = 8 * MIB  # of batches that the instance keeps for the next fetch
INSTANCE_READS_MS = 2_000  # it keeps them so long
INSTANCE_TRAFFIC_TOPICS_MAX = 1_000  # topics that an instance counts apart within a minute

# The audit trail (docs/adr/0047).
AUDIT_STATE_BYTES_MAX = 64 * KIB  # of the state before a change and after it, each: an item has 400 KB at most
AUDIT_NAME_LENGTH_MAX = 1_024  # of the resource: of a longer name, which is none, the beginning is noted
AUDIT_UNKNOWN_MS = 5 * 60_000  # a request that has told no result by then is dead: functions that change things end
AUDIT_AT_ONCE = 20  # notes in one batch: 2.6 MiB at most, which an append takes
AUDIT_RETENTION_MS_DEFAULT = 365 * 24 * 3_600_000

# `penstock import`.
IMPORT_CHUNK_RECORDS = 20_000  # records of one transaction
IMPORT_CHUNK_BYTES = 8 * MIB  # of their keys, values and headers: a chunk is in memory
IMPORT_CHUNK_MS = 1_000  # a chunk is committed then, however few records it has
IMPORT_PARTITIONS_MAX = 90  # that take records of one chunk: TRANSACTION_PARTS_MAX, with room for the note
IMPORT_READ_RECORDS = 2_000  # in one call of librdkafka
IMPORT_READ_MS = 200  # that such a call waits for them
IMPORT_QUEUED_KIB = 32 * KIB  # read ahead by librdkafka, of all partitions
IMPORT_CALL_MS_MAX = 15_000  # one request to a Kafka cluster
IMPORT_SILENCE_MS_MAX = 120_000  # brokers that fail for so long end the try
IMPORT_FAILURES_MAX = 20  # tries in a row that fail
IMPORT_BACKOFF_MS_MAX = 10_000  # between two of them
IMPORT_GROUPS_MS = 10_000  # between two looks at the source's partitions, and moves of groups, with --follow
IMPORT_REPORT_MS = 1_000  # between two events of progress with --json
IMPORT_MESSAGES = 500  # of a queue, in one transaction
IMPORT_MESSAGE_IDS_KEPT = 100_000  # of messages that were taken: a later repeat of one is taken for a new message
IMPORT_VISIBILITY_S = 120  # received messages are hidden for so long
IMPORT_QUEUE_WAIT_MS = 5_000  # a receive waits so long; then the queue counts as empty

# The Python SDK.
HOT_KEY_SHARE = 0.5  # of a hot partition's newest records: with more of one key, more partitions do not help
HOT_PARTITION_FACTOR = 2  # times the mean of the other partitions
HOT_RECORDS_MIN = 100  # with fewer in the window, chance may do it
HOT_SAMPLE_RECORDS_MAX = 1_000  # newest records of a hot partition that `topics rebalance` reads
HOT_SAMPLE_BYTES_MAX = 262_144  # of those
HOT_SAMPLED_PARTITIONS_MAX = 3  # hot partitions whose keys it looks at
SDK_CALL_MS_MAX = 30_000  # one call with its retries, where no setting says otherwise
SDK_CONNECTIONS_MAX = 16  # kept open by one client
EMBEDDED_THREADS_MAX = 64  # of a process, for the requests of asynchronous clients: a fetch that waits holds one
SDK_DETOUR_MS = 600_000  # a client of `auto` leaves a way that was refused for so long
SDK_PROOF_RENEW_MS = 240_000  # of a direct client: then it signs anew, long before PROOF_AGE_MS_MAX
SDK_PROOFS_KEPT_MAX = 16  # by one process: a proof for each stage and key
SDK_TOKEN_LENGTH_MAX = 8 * KIB  # API Gateway takes 10 KB of headers
SDK_TOKEN_RENEW_MS = 60_000  # before its end, a client asks for the next token
SDK_TOKEN_AGE_MS_MAX = 60_000  # of a token that tells no end
SDK_IDLE_CONNECTION_MS_MAX = 60_000  # then it may be dead: a load balancer or a freeze has ended it
SDK_REQUEST_TIMERS_MAX = 20  # in one produce request: each is a write of its own, so more of them take long
SDK_DELAY_STEP_MS = 100  # delays are rounded up to it, so that records share timers
SDK_EMPTY_FETCHES_MAX = 30  # of a partition, in a row: then a consumer arms it, and reads the others on
SDK_FETCH_INTERVAL_MS_MAX = 60_000  # the safety net of a sleeper asks as often
SDK_EXIT_FLUSH_S = 10  # for a producer that is still open when the interpreter exits
SDK_HEARTBEAT_GROWTH = 1.25  # of the time between heartbeats of an idle member, up to a third of its session
SDK_KEYS_REMEMBERED_MAX = 100_000  # keys whose hash a process remembers: hashing takes longer than the rest of send()
SDK_LEAVE_MS_MAX = 5_000  # a member tries so long to tell its group that it leaves; then its session ends by itself
SDK_PASSED_COMMIT_MS = 5_000  # so often a member commits offsets that it has passed without a record
SDK_POLL_BYTES_DEFAULT_MAX = 50 * MIB  # of decoded records that one poll returns: 2 KB can hold a value of 64 MiB
SDK_LOOK_AHEAD_MS = 1_000  # a heartbeat looks at a partition if its safety net ends so soon after the next one
SDK_SAFETY_NET_MS = 60_000  # a consumer that waits to be woken also fetches so often: a lost wake-up costs this delay
SDK_METRICS_INTERVAL_MS = 30_000  # between two readings for Prometheus, whoever asks
SDK_METRICS_REQUESTS_MAX = 500  # of one such reading
SDK_PAGES_MAX = 10_000  # pages of one list that the client reads
SDK_SHARE_ENTRIES_MAX = 100  # acknowledgements in one request of a share consumer
SDK_SHARE_FIRST_RECORDS = 10  # that a share consumer acquires before it knows how long its handlers take
SDK_SHARE_GIVE_BACK_MS = 2_000  # records that no handler takes for so long go back to the other consumers
SDK_SHARE_LINGER_MS = 100  # an acknowledgement waits so long for an acquire that can carry it
SDK_SHARE_LINGER_PART_MS = 1_000  # and this long, if its consumer still has records under the same lock
SDK_SHARE_FAILURES_MAX = 10  # records in a row whose handlers fail: then the consumer pauses
SDK_SHARE_PAUSE_MS = 1_000  # the first pause; each next one is twice as long
SDK_SHARE_PAUSE_MS_MAX = 60_000
SDK_SHARE_WORK_MS = 1_000  # a share consumer acquires about so much work at once
SDK_SHARED_BYTES_MAX = 16 * MIB  # of answers that readers of one process share
SDK_SHARED_MS = 2_000  # an answer with records is kept so long for other readers of the process
SDK_SHARED_PATIENCE_MS = 1_000  # a reader waits so long for the fetch of another one, then it fetches
SDK_SPAN_LINKS_MAX = 128  # contexts of records that one span links to: what OpenTelemetry keeps by default
SDK_TOPICS_REMEMBERED_MAX = 10_000  # topics that one producer knows, apart from those with records on their way
SDK_WAIT_FIRST_MS = 200  # a consumer of a lively partition polls so long before it arms: about what a wake-up costs
SDK_WAKE_UP_ANSWER_MS_MAX = 10_000  # for the answer to a handshake or a subscription
SDK_WAKE_UP_BACKOFF_MS = 500  # before a lost connection is opened again, with full jitter, doubled for each failure
SDK_WAKE_UP_BACKOFF_MS_MAX = 60_000
SDK_WAKE_UP_BYTES_MAX = 256 * 1024  # of one message: AppSync Events allows 240 KiB
SDK_WAKE_UP_CHANNELS_MAX = 50  # of one connection: AppSync allows 100
SDK_WAKE_UP_FRUITLESS_MS = 50  # before a partition is fetched again that a wake-up found empty, doubled each time,
SDK_WAKE_UP_FRUITLESS_MS_MAX = 10_000  # up to this: false wake-ups cost no more than this
SDK_WAKE_UP_HOLD_MS = 2_000  # a partition waits so long for its subscription, then long polls read it
SDK_WAKE_UP_PARTITIONS_MAX = 8  # of one topic with a channel each; a consumer that reads more takes the topic's
SDK_WAKE_UP_RETRY_MS = 300_000  # a stage without wake-ups, or a refused channel, is asked again
SDK_WAKE_UP_STABLE_MS = 30_000  # a connection that lasted so long was good: the next failure is the first

# Servers on one machine: `penstock dev`, `penstock console`, `penstock metrics` and `penstock kafka`.
BACKLOG_MAX = 128  # connections that wait to be accepted: a server takes so many at once, before it can refuse any
RESERVED_FILES = 256  # for those, for 100 connections to the service, and for files of the process
LOCAL_CONNECTIONS_MAX = 1_000  # of the dev server, the console, or the figures of a gateway
METRICS_REQUESTS_MAX = 32  # of `penstock metrics --serve`, a thread each

# `penstock dev`, the server on one machine.
DEV_REQUESTS_MAX = 256  # answered at once, a thread each: a long poll holds its thread for FETCH_WAIT_MS_MAX
DEV_BODY_BYTES_MAX = 10 * MIB  # as API Gateway: the handlers refuse far less, with a better message
DEV_CHANNELS_MAX = 100  # of one connection for wake-ups, as AppSync's
DEV_MESSAGE_BYTES_MAX = 64 * KIB  # of a client that waits for wake-ups
DEV_MESSAGES_WAITING_MAX = 1_000  # of one connection: a client that does not read loses it, and connects again
DEV_FUNCTION_CALLS_MAX = 64  # of one function that have not ended: one that hangs is called again and again
DEV_DELIVERIES_KEPT = 100  # messages of each queue and bus
DEV_DELIVERIES_BYTES_MAX = 8 * MIB  # of all of them, as lines of the file

# `penstock console`, the pages on one machine (docs/adr/0050).
CONSOLE_ROWS_MAX = 100  # of one page of a list
CONSOLE_RECORDS_MAX = 50  # of one page of records
CONSOLE_FETCHES_MAX = 3  # for one page of records
CONSOLE_PAGE_BYTES_MAX = 8 * MIB  # of the decoded records of one page
CONSOLE_SCAN_RECORDS_MAX = 50_000  # that one page of a search by key looks at
CONSOLE_SCAN_BYTES_MAX = 64 * MIB  # of them, decoded
CONSOLE_LIVE_RECORDS_MAX = 50  # in one event of a live view; the view leaves out the others, and says how many
CONSOLE_CELL_CHARACTERS_MAX = 400  # of a key, value or header in a list; the record's own page shows more
CONSOLE_VALUE_CHARACTERS_MAX = 200_000  # of a value on the record's own page
CONSOLE_CELL_HEADERS_MAX = 10  # of a record in a list
CONSOLE_HEADERS_MAX = 100  # on the record's own page: a million of them fit into a batch of 277 bytes
CONSOLE_LOG_LINES_MAX = 500  # of a job's run: the last ones
CONSOLE_LOG_LINES_READ_MAX = 100_000  # to find them
CONSOLE_FORM_BYTES_MAX = 14 * MIB  # a record of 4 MiB, where the form writes three characters for a byte
CONSOLE_FORM_FIELDS_MAX = 1_000
CONSOLE_REQUESTS_MAX = 16  # answered at once, a thread each
CONSOLE_STREAMS_MAX = 8  # live views at once, a thread each
CONSOLE_FIGURES_MS_MIN = 5_000  # between two readings of the overview's figures, if one takes few requests
CONSOLE_FIGURES_REQUESTS_FEW = 50  # else the readings are SDK_METRICS_INTERVAL_MS apart
CONSOLE_LISTS_MS_MAX = 500  # that a page waits for a list; then it shows it as it was
CONSOLE_ASIDE_MS_MAX = 2_000  # that a request of a background reading waits for pages that ask the service
CONSOLE_FIRST_FIGURES_MS_MAX = 400  # that the overview waits for its first figures; then it comes without them
CONSOLE_ACCOUNT_MS_MIN = 60_000  # between two readings of the account's alarms and costs
CONSOLE_ABANDONED_MS = 86_400_000  # a group without members that did not commit for longer counts apart
CONSOLE_SERIES_MAX = 500  # topics whose last readings the console keeps, the first that it has read twice
CONSOLE_SERIES_POINTS_MAX = 60  # readings of each
CONSOLE_TOP_ROWS = 10  # consumers and topics on the overview
CONSOLE_SESSIONS_MAX = 8  # browsers that came by a link; then the oldest must come by a new one

# `penstock kafka`, the gateway (docs/adr/0055).
KAFKA_CONNECTIONS_DEFAULT_MAX = 2_000
KAFKA_REQUEST_BYTES_MAX = 1 * MIB  # of one request, but those that produce
KAFKA_REQUEST_ENTRIES_MAX = 20_000  # names, partitions, and what else a request lists, all together
KAFKA_METADATA_BYTES_MAX = 4 * MIB  # of one request: it may name TOPICS_MAX topics
KAFKA_PIPELINED_MAX = 32  # requests of one connection that run side by side
KAFKA_LOGIN_MS_MAX = 30_000  # for a client to log in
KAFKA_IDLE_MS_MAX = 600_000  # between two requests
KAFKA_FRAME_MS_MAX = 30_000  # from the first byte of a request to its last
KAFKA_WRITE_MS_MAX = 30_000  # for a client to take one answer
KAFKA_DRAIN_MS_MAX = 10_000  # for open requests, when the gateway stops
KAFKA_REQUESTS_BYTES_MAX = 64 * MIB  # of all requests that are read or handled
KAFKA_SMALL_BYTES_MAX = 64 * KIB  # of a request or an answer that passes those that wait for room
KAFKA_STALL_MS_MAX = 2_000  # for a client to send or take the next 64 KiB, while others wait for its room
KAFKA_PRODUCE_BYTES_MAX = 8 * MIB  # of one produce request
KAFKA_PRODUCE_CALLS_MAX = 8  # of the service, side by side
KAFKA_RECORD_ERRORS_MAX = 1_000  # that one answer lists of a batch: clients hear of the next ones when they send again
KAFKA_GATHER_BYTES_MIN = 256 * KIB  # batches of clients that want throughput: they may wait for company
KAFKA_GATHER_BYTES_MAX = 2_750 * KIB  # a call is full enough: one more batch of a client may not fit
KAFKA_GATHER_MS_MAX = 50  # for company, while another call is under way
KAFKA_FETCHES_BYTES_MAX = 32 * MIB  # of all answers to fetches, until their clients have them
KAFKA_SESSIONS_MAX = 2_000  # of fetches
KAFKA_SESSION_PARTITIONS_MAX = 10_000  # of one client
KAFKA_SESSIONS_PARTITIONS_MAX = 200_000  # of all sessions of one gateway
KAFKA_TRANSACTIONS_BYTES_MAX = 32 * MIB  # of all open transactions; one that finds no room is staged
KAFKA_TRANSACTIONAL_IDS_MAX = 10_000  # that one gateway remembers: idle ones make room for others
KAFKA_TRANSACTION_PLACES_MAX = 10_000  # partitions in which one epoch has sent records
KAFKA_TRANSACTION_METADATA_BYTES_MAX = 128 * KIB  # with the offsets of one transaction: they travel in a frame's header
KAFKA_TRANSACTION_EXPIRY_MS = 1_000  # between two looks for transactions whose time is over
KAFKA_POLLS_MAX = 16  # long polls, where the service has no wake-ups
KAFKA_SHARE_BYTES_MAX = 32 * MIB  # of all answers to share fetches, until their clients have them
KAFKA_SHARE_CLIENTS_MAX = 2_000  # that a gateway knows sessions or locks of
KAFKA_SHARE_IDLE_MS = 600_000  # a client of a share group that asks nothing for so long may be forgotten
KAFKA_SHARE_RECORDS_MAX = 20_000  # that one client holds: further locks push out the oldest
KAFKA_SHARE_MEMBERS_MAX = 10_000  # of share groups
KAFKA_SHARE_MEMBER_MS_MAX = 45_000  # between two heartbeats of a member
KAFKA_SHARE_HEARTBEAT_MS = 5_000  # that members are told to heartbeat in
KAFKA_LED_GROUP_BYTES_MAX = 8 * MIB  # of the document of a group whose leader assigns, once it is decompressed
KAFKA_LED_LOOK_MS_MAX = 5_000  # between two looks at that document: a third of the shortest session, if that is less
KAFKA_LED_WAIT_LOOK_MS = 250  # the same while clients wait for a generation or for an assignment
KAFKA_LED_TRIES_MAX = 12  # of a change to that document, when other gateways change it meanwhile
KAFKA_LED_GROUPS_MAX = 1_000  # that one gateway looks at

# Quotas (docs/adr/0049).
QUOTAS_MAX = 1_000  # of a stage, patterns and defaults among them: each instance remembers all
QUOTA_RATE_MAX = 10**12  # bytes or requests in a second
QUOTA_COUNT_MAX = 1_000_000  # topics, partitions, groups or subscriptions of one principal
QUOTA_STORED_BYTES_MAX = 10**15  # that a topic may hold by a quota
QUOTA_STORED_AGE_MS = 30_000  # of the stored bytes by which an instance decides, then it reads the heads again
QUOTA_STORED_REREAD_MS = 1_000  # of stored bytes by which an instance refuses, then it reads the heads again
CLAIMS_CHECKED_MAX = 100  # of a principal at its limit, at once: a call looks which resources are gone
CLAIM_GRACE_MS = 15 * 60_000  # so long a resource may take to be made after its claim: functions end before
QUOTA_BURST_MS = 400  # of a rate, that may be spent at once after a quiet time
QUOTA_CHARGE_MS = 10  # of a rate, that an instance may charge ahead when little credit is left
QUOTA_PAUSE_MS_MIN = 25  # between a refused charge and the next try of its instance, doubling
QUOTA_PAUSE_MS_MAX = 200  # up to this, or to the time when there is credit
QUOTA_CHARGED_AHEAD_MS = 10_000  # an instance far below a quota charges what it spends in this time
QUOTA_FETCH_BYTES_MIN = 64 * KIB  # that a fetch may answer however little of its quota is left
QUOTA_WAIT_MS_MAX = 60_000  # the longest Retry-After of a quota: the rate may be raised meanwhile
QUOTA_ATTEMPTS_MAX = 4  # writes of one charge, where other instances change the bucket between them
INSTANCE_TENANT_BYTES_MAX = 32 * MIB  # of tenants of records that one instance remembers, or those of one partition
INSTANCE_SHARES_MAX = 10_000  # of quotas that one instance remembers; it charges anew for those it forgets
PRINCIPAL_LENGTH_MAX = ACL_PRINCIPAL_LENGTH_MAX  # of a quota

# `penstock apply`.
APPLY_FILE_BYTES_MAX = 4 * MIB
APPLY_NODES_MAX = 200_000  # values of a file, those of aliases counted each time
APPLY_DEPTH_MAX = 24  # levels of a file
APPLY_CALLS_MAX = 8  # at a time
