"""The maximum sizes of external input: clients, backends, tools and files.

Each bound has a row in the table of docs/security.md.
"""

KIB, MIB = 2**10, 2**20

# client
HEAD_BYTES = 64 * KIB  # the request line and the headers of a request
HEADERS = 200
# The chunk sizes, chunk extensions and trailers of a body; `BODY_BYTES` does not count them.
FRAMING_BYTES = 1 * MIB
PIPELINED = 128  # requests that wait on a connection for the response to an earlier request
DROPPED_BYTES = 64 * MIB  # the part of a body that is received after its response was sent
BODY_BYTES = 32 * MIB  # default of `server.max_body_bytes`
FIELDS = 1_000  # fields of a request; each becomes a separate object, even if it is unknown
# A request is processed in a thread if it is large and has many objects, or if it is huge. In the
# event loop, it would delay other requests by milliseconds.
LARGE_BYTES = 128 * KIB
OBJECTS = 8_192
HUGE_BYTES = 1 * MIB
# The text of a reply is searched for the names of at most this many tools. A search for more names
# would delay other requests.
NAMED_TOOLS = 300

# page
FEEDS = 16  # concurrent event streams of the dashboard

# engine
STREAM_BYTES = 32 * MIB  # a streamed reply
EVENT_BYTES = 8_000_000  # one event of a stream
IDLE_LINES = 100_000  # consecutive lines without an event, such as comments: 0.2 s of work
DOCUMENT_BYTES = 4 * MIB  # a response that is not a stream, such as a long list of models

# model
CALLS = 128  # calls in one reply
MEMBERS = 100_000  # members and containers of a call
LEVELS = 64  # levels of nested arrays and objects; deeper nesting exhausts Python's stack
DIGITS = 1_000  # digits of a number that is repaired; a longer number is rejected, not rounded
# The search for calls in a reply ends after this many texts that look like the start of a call but
# are none. A long text counts more than once: `READ_IN_VAIN` characters count as one more text.
OPENINGS = 500
READ_IN_VAIN = 1 * KIB

# schema
SCHEMA_BYTES = 1 * MIB  # arguments are not validated against a larger schema
CHECKS = 2_000_000  # steps of the validation of one value
COPIES = 200_000  # parts of a value that are copied into error messages
PATTERN_CHARACTERS = 4_096  # characters of a regular expression
# The size of a compiled expression, in units of 32 bytes: `^.{1,1000}$` has 70,000.
PATTERN_SIZE = 75_000
# The size of all compiled expressions of a schema: they take 0.1 s to compile, and 5 to 30 MB.
PATTERNS_SIZE = 100_000
PATTERN_STEPS = 5_000_000  # states that are visited to match one value: 0.1 s

# tool server
# A message of a tool server: a line, an event or a body. FastMCP sends a text of 5 MB twice.
ANSWER_BYTES = 16 * MIB
VALUES = 50_000  # JSON values in such a message
# Items of a list in a message: the tools on one page, or the parts of a call's result.
ITEMS = 1_000
TOOLS = 2_000
PAGES = 100
# A tool server is disconnected after this many unsolicited messages, which take 2 s of work. Each
# KiB counts as one more message. The count drops by `UNASKED_A_SECOND` per second.
UNASKED = 10_000
UNASKED_A_SECOND = 200

# store
STORED_ITEMS = 10_000  # input items of a request whose response is stored
RESPONSE_BYTES = 4 * MIB  # one stored response; storing more would delay other requests

# file
FILE_BYTES = 4 * MIB  # a file with settings, keys, a profile or a scenario
NAME_BYTES = 255  # one part of a path; the limit of most file systems
KEY_PARTS = 32  # parts of a dotted key in settings, for which tomllib takes quadratic time
PROBLEMS = 100  # reported errors in settings
CHARACTERS = 1_000  # characters of a reported error
RECORDED_BYTES = 64 * MIB  # one line of a recording
HEADER_BYTES = 64 * MIB  # the header of a model file
HEADER_FIELDS = 1_000
TRIED_BYTES = 64 * KIB  # a file with the measurements of a model

# tool
YIELDED = 100_000  # values that a tool's generator yields
RESULT_CHARACTERS = 16_000  # default of `tools.result_chars`
