"""The roles of messages, grouped by author."""

SYSTEM = ("system", "developer")  # by the operator
RESULTS = ("tool", "function")  # by tools: data, never instructions; `function` is the older name
FOREIGN = (*RESULTS, "user")  # neither by the operator nor by the model
TURNS = ("user", "assistant")  # some chat templates require that these alternate
