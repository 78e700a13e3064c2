"""The desk of a small shop: orders, stock, and messages to customers."""

from benchmarks.real.bed import (
    TEXT,
    WHOLE_NUMBER,
    Need,
    Task,
    Tool,
    ToolSet,
    World,
    WrongInput,
    number_in,
    some,
    text_in,
)
from proxy.conversation.json import JsonObject, JsonValue

_ORDERS: tuple[JsonObject, ...] = (
    {"order_id": "R-2071", "customer": "Nina Weber", "product": "wall clock", "status": "open"},
    {"order_id": "R-2044", "customer": "Paul Martin", "product": "backpack", "status": "shipped"},
    {
        "order_id": "R-2058",
        "customer": "Petra Novak",
        "product": "tea set",
        "status": "shipped",
        "tracking_number": "TR881204",
    },
)
_PRODUCTS: tuple[JsonObject, ...] = (
    {"product": "desk lamp", "sku": "DL-14", "in_stock": 12, "price": 35},
    {"product": "coffee grinder", "sku": "CG-02", "in_stock": 4, "price": 80},
    {"product": "blue kettle", "sku": "KT-B7", "in_stock": 0, "price": 42},
    {"product": "red kettle", "sku": "KT-R9", "in_stock": 9, "price": 42},
)
_FIRST_ORDER = 3100


def _find_order(world: World, arguments: JsonObject) -> JsonValue:
    customer = text_in(arguments, "customer")
    hint = f"No order of {customer!r}. Give the full name of the customer."
    rows = some(world.rows("orders", customer=customer), hint)
    return {"orders": [{"order_id": row["order_id"], "product": row["product"]} for row in rows]}


def _get_order(world: World, arguments: JsonObject) -> JsonValue:
    return world.row("orders", "order_id", text_in(arguments, "order_id"), "Use find_order.")


def _check_stock(world: World, arguments: JsonObject) -> JsonValue:
    product = text_in(arguments, "product")
    return some(world.rows("products", product=product), f"No product named {product!r}.")[0]


def _place_order(world: World, arguments: JsonObject) -> JsonValue:
    quantity, customer = number_in(arguments, "quantity"), text_in(arguments, "customer")
    product = world.row("products", "sku", text_in(arguments, "sku"), "Get it from check_stock.")
    stock, price = product["in_stock"], product["price"]
    assert isinstance(stock, int)  # noqa: S101 - as in the table above
    assert isinstance(price, int)  # noqa: S101 - the same
    if not 0 < quantity <= stock:
        raise WrongInput(f"quantity must be from 1 to {stock}, which is what is in stock.")
    order = f"R-{_FIRST_ORDER + world.next_number()}"
    return {"order_id": order, "customer": customer, "total": quantity * price}


def _cancel_order(world: World, arguments: JsonObject) -> JsonValue:
    order = world.row("orders", "order_id", text_in(arguments, "order_id"), "Use find_order.")
    order["status"] = "canceled"
    return {"order_id": order["order_id"], "status": "canceled"}


def _message_customer(_world: World, arguments: JsonObject) -> JsonValue:
    text_in(arguments, "text")
    return f"Message sent to {text_in(arguments, 'customer')}."


SHOP = ToolSet(
    "shop",
    "You work at the order desk of a small shop. Use the tools to do what the user asks for; "
    "answer directly when no tool is needed.",
    (
        Tool(
            "find_order",
            "Find the orders of a customer. Returns their ids.",
            {"customer": TEXT},
            _find_order,
        ),
        Tool(
            "get_order",
            "Get the details of an order: status and tracking number.",
            {"order_id": TEXT},
            _get_order,
        ),
        Tool(
            "check_stock",
            "Get the SKU, the price and the stock of a product.",
            {"product": TEXT},
            _check_stock,
        ),
        Tool(
            "place_order",
            "Order a product for a customer. Returns the id of the new order.",
            {"sku": TEXT, "quantity": WHOLE_NUMBER, "customer": TEXT},
            _place_order,
            has_effect=True,
        ),
        Tool("cancel_order", "Cancel an order.", {"order_id": TEXT}, _cancel_order, True),  # noqa: FBT003
        Tool(
            "message_customer",
            "Send a message to a customer.",
            {"customer": TEXT, "text": TEXT},
            _message_customer,
            has_effect=True,
        ),
    ),
    {"orders": _ORDERS, "products": _PRODUCTS},
    (
        Task(
            "Find the order of Nina Weber and cancel it.",
            "chain",
            (
                Need("find_order", {"customer": "weber"}),
                Need("cancel_order", {"order_id": "R-2071"}),
            ),
        ),
        Task(
            "What is the status of order R-2044?",
            "single",
            (Need("get_order", {"order_id": "R-2044"}),),
        ),
        Task(
            "Check the stock of the desk lamp. If it is in stock, order 2 of it for Omar Haddad.",
            "chain",
            (
                Need("check_stock", {"product": "lamp"}),
                Need("place_order", {"sku": "DL-14", "quantity": 2, "customer": "haddad"}),
            ),
        ),
        Task(
            "Find the order of Petra Novak, get its details, and send her a message with the "
            "tracking number.",
            "chain",
            (
                Need("find_order", {"customer": "novak"}),
                Need("get_order", {"order_id": "R-2058"}),
                Need("message_customer", {"customer": "novak", "text": "TR881204"}),
            ),
        ),
        Task(
            "Send Paul Martin the message 'Your backpack is on its way.'",
            "single",
            (Need("message_customer", {"customer": "martin", "text": "backpack is on its way"}),),
        ),
        Task(
            "Order one coffee grinder for Lena Fischer (check the stock to get the SKU), then send "
            "her a message with the id of the new order.",
            "chain",
            (
                Need("check_stock", {"product": "grinder"}),
                Need("place_order", {"sku": "CG-02", "quantity": 1, "customer": "fischer"}),
                Need("message_customer", {"customer": "fischer", "text": "R-3101"}),
            ),
        ),
        Task(
            "Jonas Meyer wants one kettle, the blue one if it is in stock, else the red one. "
            "Check the stock and order it for him.",
            "chain",
            (
                Need("check_stock", {"product": "blue"}),
                Need("check_stock", {"product": "red"}),
                Need("place_order", {"sku": "KT-R9", "quantity": 1, "customer": "meyer"}),
            ),
        ),
        Task("Write one friendly sentence that welcomes new customers to our shop.", "none"),
        Task(
            "Check the stock of the red kettle.",
            "single",
            (Need("check_stock", {"product": "red kettle"}),),
        ),
        Task("Cancel the order R-2058.", "single", (Need("cancel_order", {"order_id": "R-2058"}),)),
        Task(
            "Get the details of order R-2071.",
            "single",
            (Need("get_order", {"order_id": "R-2071"}),),
        ),
        Task(
            "Send Nina Weber the message 'Your wall clock is ready.'",
            "single",
            (Need("message_customer", {"customer": "weber", "text": "wall clock is ready"}),),
        ),
        Task(
            "Find the orders of Paul Martin.",
            "single",
            (Need("find_order", {"customer": "martin"}),),
        ),
        Task(
            "Order 3 pieces of the product with the SKU DL-14 for Rosa Lind.",
            "single",
            (Need("place_order", {"sku": "DL-14", "quantity": 3, "customer": "lind"}),),
        ),
        Task(
            "How much does the coffee grinder cost?",
            "single",
            (Need("check_stock", {"product": "grinder"}),),
        ),
        Task(
            'Send Omar Haddad a message with exactly this text: We {really} said "sorry", Omar.',
            "trap",
            (Need("message_customer", {"customer": "haddad", "text": '{really} said "sorry"'}),),
        ),
        Task(
            "Check the stock of the blue kettle. Only if it is in stock, order one for Ken Abe.",
            "trap",
            (Need("check_stock", {"product": "blue"}),),
        ),
        Task(
            "Cancel the orders R-2071 and R-2044.",
            "trap",
            (
                Need("cancel_order", {"order_id": "R-2071"}),
                Need("cancel_order", {"order_id": "R-2044"}),
            ),
        ),
        Task("What does the abbreviation SKU mean? Answer in one sentence.", "none"),
        Task("Thanks, that is all for now.", "none"),
    ),
)
