"""The maximum sizes of external input: clients, backends, tools and files.

Each bound has a row in the table of docs/security.md.
"""

KIB, MIB = 2**10, 2**20

# client
HEAD_BYTES = 64 * KIB  # of a request, line and headers
HEADERS = 200
FRAMING_BYTES = 1 * MIB  # of chunk heads, extensions and trailers beyond the size of the body
PIPELINED = 128  # requests of a connection that wait for the response to the first
DROPPED_BYTES = 64 * MIB  # of a body that arrives after its response
BODY_BYTES = 32 * MIB  # default of `server.max_body_bytes`
FIELDS = 1_000  # of a request: each becomes a separate object, known or not
# A request is processed in a thread if it is large and has many objects, or if it is huge: it would
# delay others by milliseconds.
LARGE_BYTES = 128 * KIB
OBJECTS = 8_192
HUGE_BYTES = 1 * MIB
NAMED_TOOLS = 300  # whose calls by name are recognized; preparing more would delay other requests

# page
FEEDS = 16  # of the dashboard at once

# engine
STREAM_BYTES = 32 * MIB
EVENT_BYTES = 8_000_000
IDLE_LINES = 100_000  # of a stream without an event in between, such as comments: 0.2 s of work
DOCUMENT_BYTES = 4 * MIB  # of any other response: a gateway lists hundreds of models in one

# model
CALLS = 128  # of one reply
MEMBERS = 100_000  # members and containers of a call; no tool needs more, and each costs time
LEVELS = 64  # of nested arrays and objects; deeper ones exhaust Python's stack
DIGITS = 1_000  # digits of a number that is repaired: a longer number is rejected, never rounded
OPENINGS = (
    500  # texts that look like the beginning of a call and are none; the rest is not searched
)
READ_IN_VAIN = 1 * KIB  # characters of such texts, which count as one more

# schema
SCHEMA_BYTES = 1 * MIB  # a larger schema is not checked
CHECKS = 2_000_000  # of one value
COPIES = 200_000  # of parts of a value, for its errors
PATTERN_CHARACTERS = 4_096  # of one regular expression
PATTERN_SIZE = 75_000  # of a compiled one, in units of 32 bytes: `^.{1,1000}$` has 70,000
PATTERNS_SIZE = 100_000  # of all in one schema: 0.1 s to compile, 5 to 30 MB
PATTERN_STEPS = 5_000_000  # visited states when matching one value: 0.1 s

# tool server
ANSWER_BYTES = 16 * MIB  # of a line, of an event, or of a body; FastMCP writes 5 MB of text twice
VALUES = 50_000  # of JSON in one of these
ITEMS = 1_000  # of a list in a result: the tools on one page, or the parts of a call's result
TOOLS = 2_000
PAGES = 100
UNASKED = 10_000  # unsolicited messages, each KiB counting as one: 2 s of work
UNASKED_A_SECOND = 200  # that do not count

# store
STORED_ITEMS = 10_000  # of a request whose answer is stored; each costs time at its end
RESPONSE_BYTES = 4 * MIB  # of one response; a larger one would delay the others

# file
FILE_BYTES = 4 * MIB  # of settings, keys, a profile or a scenario
NAME_BYTES = 255  # of a part of a path, the limit of most file systems
KEY_PARTS = 32  # of a key of settings: tomllib needs quadratic time for them
PROBLEMS = 100  # wrong settings to report
CHARACTERS = 1_000  # of each of these reports
RECORDED_BYTES = 64 * MIB  # bytes of a line of a recording
HEADER_BYTES = 64 * MIB  # bytes of a model's header
HEADER_FIELDS = 1_000
TRIED_BYTES = 64 * KIB  # of the measurements of a model

# tool
YIELDED = 100_000  # values of a generator
RESULT_CHARACTERS = 16_000  # default of `tools.result_chars`
