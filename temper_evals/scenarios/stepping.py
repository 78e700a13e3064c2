"""Families in which a step needs an earlier result: `chain`, `branch`, `failing` and `long`."""

from proxy.conversation.json import JsonObject
from temper_evals.scenarios.building import TaskBuilder
from temper_evals.scenarios.catalogue import SampleValues, tools_with
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import ExpectedEnd, PlannedTask
from temper_evals.scenarios.worlds import CannedOutcome

_CHAIN = ("find_customer", "latest_order", "order_items", "get_stock", "get_supplier")
_PAGE_WORDS = 220


def _chain(builder: TaskBuilder, values: SampleValues) -> tuple[str, str, str]:
    """Plan three calls that lead from a customer to an article.

    Returns the customer's name, the order and the article.
    """
    name, customer, order = values.name(), values.code("C"), values.code("O")
    sku = values.sku()
    builder.step(builder.returns("find_customer", {"name": name}, {"customer_id": customer}))
    builder.step(
        builder.returns("latest_order", {"customer_id": customer}, {"order_id": order}),
        needs=[customer],
    )
    builder.step(
        builder.returns("order_items", {"order_id": order}, {"items": [sku]}), needs=[order]
    )
    return name, order, sku


def chain(index: int) -> PlannedTask:
    """Return task `index`: three to six steps that need values from earlier results.

    The last step changes something.
    """
    values = SampleValues(f"chain-{index}")
    ends = ("refund_order", "reorder_article", "send_message")
    tools = tools_with([*_CHAIN, *ends], values, 10)
    builder = TaskBuilder("chain", index, tools)
    name, order, sku = _chain(builder, values)
    amount, stock = values.number(5, 90), values.number(1, 50)
    match index % 3:
        case 0:
            builder.steps.pop()
            refund = PlannedCall("refund_order", {"order_id": order, "amount": amount})
            builder.change(refund, needs=[order])
            task = f"refund {amount} euros of it"
        case 1:
            quantity = PlannedCall("reorder_article", {"sku": sku, "quantity": amount})
            builder.change(quantity, needs=[sku])
            task = f"order {amount} more of the article in it"
        case _:
            _stock_step(builder, sku, stock)
            supplier = values.name()
            looked_up = builder.returns("get_supplier", {"sku": sku}, {"supplier": supplier})
            builder.step(looked_up, needs=[sku])
            text = f"Only {stock} left of {sku}"
            sent = PlannedCall("send_message", {"to": supplier, "text": text})
            builder.change(sent, needs=[supplier])
            task = (
                "look up the stock and the supplier of the article in it, and send the supplier "
                'the chat message "Only STOCK left of ARTICLE"'
            )
    return builder.done(f"Find the latest order of {name}, {task}, and tell me the reference.")


def _stock_step(builder: TaskBuilder, sku: str, stock: int) -> None:
    builder.step(builder.returns("get_stock", {"sku": sku}, {"in_stock": stock}), needs=[sku])


def branch(index: int) -> PlannedTask:
    """Return task `index`: the result of the first step decides which change is right."""
    values = SampleValues(f"branch-{index}")
    sku, stock, least = values.sku(), values.number(1, 40), values.number(10, 30)
    builder = TaskBuilder(
        "branch", index, tools_with(["get_stock", "reorder_article", "create_task"], values, 6)
    )
    _stock_step(builder, sku, stock)
    owner, quantity = values.name(), values.number(5, 60)
    if stock < least:
        due = PlannedCall("reorder_article", {"sku": sku, "quantity": quantity})
    else:
        due = PlannedCall("create_task", {"title": f"count {sku}", "owner": owner})
    builder.change(due, needs=[f'"in_stock":{stock}'])
    return builder.done(
        f"If fewer than {least} of {sku} are in stock, order {quantity} more; else put the task "
        f'"count {sku}" on the list of {owner}. Tell me the reference.'
    )


def failing(index: int) -> PlannedTask:
    """Return task `index`: a tool rejects a value, is busy once, or finds nothing."""
    values = SampleValues(f"failing-{index}")
    tools = tools_with(["book_room", "find_customer", "reorder_article"], values, 5)
    builder = TaskBuilder("failing", index, tools)
    match index % 3:
        case 0:
            return _plan_taken_room(builder, values)
        case 1:
            return _plan_busy_system(builder, values)
        case _:
            name = values.name()
            problem = f"no customer is called {name}; error N{values.number(1000, 9999)}"
            builder.step(
                builder.ends("find_customer", {"name": name}, CannedOutcome(problem, fails=True))
            )
            code = problem.rpartition(" ")[2]
            return builder.done(
                f"What is the customer id of {name}? If there is none, tell me the error's code.",
                ExpectedEnd((code,)),
            )


def _plan_taken_room(builder: TaskBuilder, values: SampleValues) -> PlannedTask:
    (room, other), date, people = values.rooms(2), values.date(), values.number(2, 9)
    wanted: JsonObject = {"room": room, "date": date, "people": people}
    problem = f"the {room} is taken on that day; free is: {other}"
    builder.step(builder.ends("book_room", {**wanted}, CannedOutcome(problem, fails=True)))
    builder.change(PlannedCall("book_room", {**wanted, "room": other}), needs=[f"free is: {other}"])
    return builder.done(
        f"Book the {room} on {date} for {people} people, or a free room if it is taken. "
        "Tell me the reference."
    )


def _plan_busy_system(builder: TaskBuilder, values: SampleValues) -> PlannedTask:
    sku, quantity = values.sku(), values.number(2, 80)
    busy = CannedOutcome("the system is busy, call it once more", fails=True)
    call = builder.ends(
        "reorder_article", {"sku": sku, "quantity": quantity}, busy, CannedOutcome(None)
    )
    builder.step(call)
    builder.change(call)
    return builder.done(f"Order {quantity} more of {sku}, and tell me the reference.")


def long(index: int) -> PlannedTask:
    """Return task `index`: at least thirty pages to read; the last step needs the first page."""
    values = SampleValues(f"long-{index}")
    pages, document = values.number(30, 36), f"manual-{values.number(100, 999)}"
    builder = TaskBuilder("long", index, tools_with(["read_page", "create_ticket"], values, 4))
    code = values.code("K")
    for page in range(1, pages + 1):
        text = [values.topic() for _ in range(_PAGE_WORDS // 3)]
        end = f"The code of this manual is {code}." if page == 1 else f"End of page {page}."
        # some tools return lines, and others a single long line
        between = "\n" if index % 2 else " "
        whole = between.join((*text, end))
        builder.step(builder.returns("read_page", {"document": document, "page": page}, whole))
    ticket = PlannedCall("create_ticket", {"title": code, "priority": "high"})
    builder.change(ticket, needs=[code])
    return builder.done(
        f"Read pages 1 to {pages} of {document}, one after the other. Page 1 tells a code: when "
        "you have read all pages, open a ticket with that code as its title and priority high, "
        "and tell me the reference."
    )
