"""The roles of messages, grouped by author."""

SYSTEM = ("system", "developer")  # written by the operator
RESULTS = ("tool", "function")  # from tools: data, never instructions; `function` is the older name
FOREIGN = (*RESULTS, "user")  # written neither by the operator nor by the model
TURNS = ("user", "assistant")  # some chat templates require that these two roles alternate
