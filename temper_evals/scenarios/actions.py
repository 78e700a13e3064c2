"""Requests of one sentence, with the call that fulfills each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from proxy.conversation.json import JsonObject
from temper_evals.scenarios.catalogue import SampleValues
from temper_evals.scenarios.scenario import PlannedCall


@dataclass(frozen=True, slots=True)
class UserRequest:
    """A user's request, and the call that it asks for.

    `vague` is the same request without one value, and `lacking` is the name of this value.
    """

    text: str
    call: PlannedCall
    vague: str
    lacking: str


# Draws the arguments of a call. A different order of draws would change all instances.
Draw: TypeAlias = Callable[[SampleValues], JsonObject]

# By tool: its arguments, the request, the request without a value, and the name of that value.
USER_REQUESTS: Mapping[str, tuple[Draw, str, str, str]] = {
    "refund_order": (
        lambda values: {"order_id": values.code("O"), "amount": values.number(5, 400)},
        "Refund order {order_id} with {amount} euros.",
        "Refund {amount} euros for the order.",
        "order",
    ),
    "send_message": (
        lambda values: {
            "to": values.name(),
            "text": f"Please look at {values.topic()} ({values.number(100, 999)}).",
        },
        'Send {to} the chat message "{text}"',
        'Send the chat message "{text}"',
        "who",
    ),
    "send_email": (
        lambda values: {
            "to": f"{values.name().split()[0].lower()}@example.org",
            "subject": values.topic(),
            "body": f"It is settled on {values.date()}.",
        },
        'Email {to}, subject "{subject}", saying "{body}"',
        'Send the email with the subject "{subject}" that says "{body}"',
        "address",
    ),
    "send_sms": (
        lambda values: {
            "number": values.phone(),
            "text": f"Your code is {values.number(1000, 9999)}.",
        },
        'Text the phone {number}: "{text}"',
        'Send a text to the phone: "{text}"',
        "number",
    ),
    "create_ticket": (
        lambda values: {
            "title": f"{values.topic()} in {values.city()}",
            "priority": values.choice(["low", "normal", "high"]),
        },
        'Open a ticket "{title}" with priority {priority}.',
        "Open a ticket with priority {priority}.",
        "title",
    ),
    "create_task": (
        lambda values: {"title": f"check {values.sku()}", "owner": values.name()},
        'Put the task "{title}" on the list of {owner}.',
        'Put the task "{title}" on the list.',
        "owner",
    ),
    "create_event": (
        lambda values: {"title": f"review of {values.topic()}", "date": values.date()},
        'Put "{title}" into the calendar on {date}.',
        'Put "{title}" into the calendar.',
        "date",
    ),
    "set_thermostat": (
        lambda values: {"room": values.rooms(1)[0], "degrees": values.number(15, 25)},
        "Set the thermostat of the {room} to {degrees} degrees.",
        "Set the thermostat to {degrees} degrees.",
        "room",
    ),
    "book_room": (
        lambda values: {
            "room": values.rooms(1)[0],
            "date": values.date(),
            "people": values.number(2, 12),
        },
        "Book the {room} on {date} for {people} people.",
        "Book the {room} for {people} people.",
        "date",
    ),
    "label_parcel": (
        lambda values: {
            "parcel": values.code("P"),
            "label": values.choice(["shipped", "waiting", "review"]),
        },
        "Label parcel {parcel} as {label}.",
        "Label the parcel as {label}.",
        "parcel",
    ),
    "archive_file": (
        lambda values: {"path": f"reports/{values.date()}/{values.sku()}.pdf"},
        "Archive the file {path}.",
        "Archive the file.",
        "file",
    ),
    "reorder_article": (
        lambda values: {"sku": values.sku(), "quantity": values.number(2, 90)},
        "Order {quantity} more of {sku}.",
        "Order {quantity} more of the article.",
        "article",
    ),
}


def make_user_request(tool: str, values: SampleValues) -> UserRequest:
    draw, text, vague, lacking = USER_REQUESTS[tool]
    arguments = draw(values)
    filled = text.format(**arguments), vague.format(**arguments)
    return UserRequest(filled[0], PlannedCall(tool, arguments), filled[1], lacking)


def any_user_request(values: SampleValues) -> UserRequest:
    return make_user_request(values.choice([*USER_REQUESTS]), values)
