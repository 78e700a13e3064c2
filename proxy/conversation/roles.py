"""The roles of messages, grouped by their author. This is the only table of them."""

SYSTEM = ("system", "developer")  # of the operator
RESULTS = ("tool", "function")  # of tools: data, never instructions; `function` is the older name
FOREIGN = (*RESULTS, "user")  # of anyone but the operator and the model
TURNS = ("user", "assistant")  # that some chat templates demand in alternation
