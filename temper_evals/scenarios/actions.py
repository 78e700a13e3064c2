"""Requests in one sentence, each with the one call that fulfils it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from temper_evals.scenarios.catalogue import SampleValues
from temper_evals.scenarios.scenario import PlannedCall


@dataclass(frozen=True, slots=True)
class Wish:
    """A user's request, the intended call, and the question to ask if a value is missing.

    `vague` is the request without one value; `lacking` names that value.
    """

    text: str
    call: PlannedCall
    vague: str
    lacking: str


Maker: TypeAlias = Callable[[SampleValues], Wish]


def _refund(values: SampleValues) -> Wish:
    order, amount = values.code("O"), values.number(5, 400)
    return Wish(
        f"Refund order {order} with {amount} euros.",
        PlannedCall("refund_order", {"order_id": order, "amount": amount}),
        f"Refund {amount} euros for the order.",
        "order",
    )


def _message(values: SampleValues) -> Wish:
    name, text = values.name(), f"Please look at {values.topic()} ({values.number(100, 999)})."
    return Wish(
        f'Send {name} the chat message "{text}"',
        PlannedCall("send_message", {"to": name, "text": text}),
        f'Send the chat message "{text}"',
        "who",
    )


def _email(values: SampleValues) -> Wish:
    name = values.name().split()[0].lower()
    subject, body = values.topic(), f"It is settled on {values.date()}."
    return Wish(
        f'Email {name}@example.org, subject "{subject}", saying "{body}"',
        PlannedCall("send_email", {"to": f"{name}@example.org", "subject": subject, "body": body}),
        f'Send the email with the subject "{subject}" that says "{body}"',
        "address",
    )


def _sms(values: SampleValues) -> Wish:
    number, text = values.phone(), f"Your code is {values.number(1000, 9999)}."
    return Wish(
        f'Text the phone {number}: "{text}"',
        PlannedCall("send_sms", {"number": number, "text": text}),
        f'Send a text to the phone: "{text}"',
        "number",
    )


def _ticket(values: SampleValues) -> Wish:
    title = f"{values.topic()} in {values.city()}"
    priority = values.choice(["low", "normal", "high"])
    return Wish(
        f'Open a ticket "{title}" with priority {priority}.',
        PlannedCall("create_ticket", {"title": title, "priority": priority}),
        f"Open a ticket with priority {priority}.",
        "title",
    )


def _task(values: SampleValues) -> Wish:
    title, owner = f"check {values.sku()}", values.name()
    return Wish(
        f'Put the task "{title}" on the list of {owner}.',
        PlannedCall("create_task", {"title": title, "owner": owner}),
        f'Put the task "{title}" on the list.',
        "owner",
    )


def _event(values: SampleValues) -> Wish:
    title, date = f"review of {values.topic()}", values.date()
    return Wish(
        f'Put "{title}" into the calendar on {date}.',
        PlannedCall("create_event", {"title": title, "date": date}),
        f'Put "{title}" into the calendar.',
        "date",
    )


def _heat(values: SampleValues) -> Wish:
    (room,), degrees = values.rooms(1), values.number(15, 25)
    return Wish(
        f"Set the thermostat of the {room} to {degrees} degrees.",
        PlannedCall("set_thermostat", {"room": room, "degrees": degrees}),
        f"Set the thermostat to {degrees} degrees.",
        "room",
    )


def _book(values: SampleValues) -> Wish:
    (room,), date, people = values.rooms(1), values.date(), values.number(2, 12)
    return Wish(
        f"Book the {room} on {date} for {people} people.",
        PlannedCall("book_room", {"room": room, "date": date, "people": people}),
        f"Book the {room} for {people} people.",
        "date",
    )


def _label(values: SampleValues) -> Wish:
    parcel, label = values.code("P"), values.choice(["shipped", "waiting", "review"])
    return Wish(
        f"Label parcel {parcel} as {label}.",
        PlannedCall("label_parcel", {"parcel": parcel, "label": label}),
        f"Label the parcel as {label}.",
        "parcel",
    )


def _archive(values: SampleValues) -> Wish:
    path = f"reports/{values.date()}/{values.sku()}.pdf"
    return Wish(
        f"Archive the file {path}.",
        PlannedCall("archive_file", {"path": path}),
        "Archive the file.",
        "file",
    )


def _reorder(values: SampleValues) -> Wish:
    sku, quantity = values.sku(), values.number(2, 90)
    return Wish(
        f"Order {quantity} more of {sku}.",
        PlannedCall("reorder_article", {"sku": sku, "quantity": quantity}),
        f"Order {quantity} more of the article.",
        "article",
    )


WISHES: Mapping[str, Maker] = {
    "refund_order": _refund,
    "send_message": _message,
    "send_email": _email,
    "send_sms": _sms,
    "create_ticket": _ticket,
    "create_task": _task,
    "create_event": _event,
    "set_thermostat": _heat,
    "book_room": _book,
    "label_parcel": _label,
    "archive_file": _archive,
    "reorder_article": _reorder,
}


def any_wish(values: SampleValues) -> Wish:
    return WISHES[values.choice([*WISHES])](values)
