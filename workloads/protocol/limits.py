"""Size limits of messages, checked before a message is parsed.

A message beyond its limit is rejected as a BadMessage; a sender never builds one.
"""

KIB, MIB = 1024, 1024 * 1024

JOB_BYTES_MAX = 64 * KIB  # a job or a command
MANIFEST_BYTES_MAX = 48 * KIB  # the manifest of an external program, which is part of a job
REPORT_BYTES_MAX = 256 * KIB
CHUNK_BYTES_MAX = MIB  # the base64 text in a chunk of telemetry
CHUNK_ENVELOPE_BYTES_MAX = KIB  # the JSON around that text
DELIVERY_BYTES_MAX = 2 * MIB  # all parcels of one delivery
DELIVERY_PARCELS_MAX = 100
# A message in its envelope: JSON escapes can triple a text, and base64 adds a third.
ENVELOPE_FACTOR, ENVELOPE_BYTES_MAX = 4, 4 * KIB
HEARTBEAT_BYTES_MAX = MIB
EVENT_BYTES_MAX = 64 * KIB
TELEMETRY_BYTES_MAX = 192 * MIB  # of memory: a day of 24 sensors, read every second
TELEMETRY_TOGETHER_BYTES_MAX = 512 * MIB  # of the runs on one page
HOST_PHONES_MAX = 2000  # that one host has, or has ever announced
