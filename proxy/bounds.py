"""How much is read of what comes from others, before anything is made of it."""

KIB, MIB = 2**10, 2**20

# model
DIGITS = 1_000  # of a number that is repaired; a longer one is refused, never rounded

# file
FILE_BYTES = 4 * MIB  # bytes of settings, keys, a profile or a scenario
NAME_BYTES = 255  # bytes of a part of a path, as everywhere
KEY_PARTS = 32  # of a key of settings; each costs as much as all before it
PROBLEMS = 100  # wrong settings to report, each with as many CHARACTERS
CHARACTERS = 1_000
RECORDED_BYTES = 64 * MIB  # bytes of a line of a recording
HEADER_BYTES = 64 * MIB  # bytes of a model's header
HEADER_FIELDS = 1_000  # fields of it
