"""A travel assistant: flights, hotels, the weather, and reminders."""

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

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY: JsonObject = {"type": "string", "enum": [*_DAYS]}

_FLIGHTS: tuple[JsonObject, ...] = (
    {"origin": "Zurich", "destination": "Lisbon", "flight_id": "TP-931", "price": 210},
    {"origin": "Zurich", "destination": "Lisbon", "flight_id": "LX-318", "price": 129},
    {"origin": "Berlin", "destination": "Rome", "flight_id": "AZ-405", "price": 98},
)
_HOTELS: tuple[JsonObject, ...] = (
    {"city": "Vienna", "hotel_id": "H-71", "name": "Hotel Linden", "price": 104},
    {"city": "Madrid", "hotel_id": "H-22", "name": "Hotel Prado", "price": 99},
    {"city": "Dublin", "hotel_id": "H-45", "name": "Liffey House", "price": 95},
)
_WEATHER: tuple[JsonObject, ...] = (
    {"city": "Lisbon", "text": "Lisbon: sunny, 24 degrees."},
    {"city": "Oslo", "text": "Oslo: snow, -3 degrees."},
    {"city": "Bergen", "text": "Bergen: rain, 9 degrees."},
    {"city": "Madrid", "text": "Madrid: sunny, 31 degrees."},
    {"city": "Dublin", "text": "Dublin: cloudy, 13 degrees."},
)
_FIRST_BOOKING, _FIRST_REMINDER = 5510, 60


def _search_flights(world: World, arguments: JsonObject) -> JsonValue:
    origin, destination = text_in(arguments, "origin"), text_in(arguments, "destination")
    text_in(arguments, "day")
    hint = f"No flight from {origin} to {destination}."
    flights = some(world.rows("flights", origin=origin, destination=destination), hint)
    return {"flights": [*flights]}


def _book_flight(world: World, arguments: JsonObject) -> JsonValue:
    passenger = text_in(arguments, "passenger")
    hint = "Use search_flights."
    flight = world.row("flights", "flight_id", text_in(arguments, "flight_id"), hint)
    number = f"BK-{_FIRST_BOOKING + world.next_number()}"
    return {"booking_number": number, "flight_id": flight["flight_id"], "passenger": passenger}


def _find_hotel(world: World, arguments: JsonObject) -> JsonValue:
    city = text_in(arguments, "city")
    return {"hotels": [*some(world.rows("hotels", city=city), f"No hotel in {city}.")]}


def _book_hotel(world: World, arguments: JsonObject) -> JsonValue:
    nights, guest = number_in(arguments, "nights"), text_in(arguments, "guest")
    hotel = world.row("hotels", "hotel_id", text_in(arguments, "hotel_id"), "Use find_hotel.")
    number = f"BK-{_FIRST_BOOKING + world.next_number()}"
    return {"booking_number": number, "hotel": hotel["name"], "nights": nights, "guest": guest}


def _get_weather(world: World, arguments: JsonObject) -> JsonValue:
    city = text_in(arguments, "city").partition(",")[0]
    return str(some(world.rows("weather", city=city), f"No weather of {city!r}.")[0]["text"])


def _set_reminder(world: World, arguments: JsonObject) -> JsonValue:
    text, day = text_in(arguments, "text"), text_in(arguments, "day")
    if day.lower() not in _DAYS:
        raise WrongInput(f"day must be one of {', '.join(_DAYS)}.")
    return {"reminder": f"m-{_FIRST_REMINDER + world.next_number()}", "day": day, "text": text}


TRAVEL = ToolSet(
    "travel",
    "You are a travel assistant. Use the tools to do what the user asks for; answer directly when "
    "no tool is needed.",
    (
        Tool(
            "search_flights",
            "Search flights between two cities. Returns their ids and prices.",
            {"origin": TEXT, "destination": TEXT, "day": _DAY},
            _search_flights,
        ),
        Tool(
            "book_flight",
            "Book a flight by its id.",
            {"flight_id": TEXT, "passenger": TEXT},
            _book_flight,
            has_effect=True,
        ),
        Tool(
            "find_hotel", "Find hotels in a city. Returns their ids.", {"city": TEXT}, _find_hotel
        ),
        Tool(
            "book_hotel",
            "Book a hotel by its id.",
            {"hotel_id": TEXT, "nights": WHOLE_NUMBER, "guest": TEXT},
            _book_hotel,
            has_effect=True,
        ),
        Tool("get_weather", "Get the weather of a city.", {"city": TEXT}, _get_weather),
        Tool(
            "set_reminder",
            "Set a reminder for a day.",
            {"text": TEXT, "day": _DAY},
            _set_reminder,
            has_effect=True,
        ),
    ),
    {"flights": _FLIGHTS, "hotels": _HOTELS, "weather": _WEATHER},
    (
        Task(
            "What is the weather in Lisbon and in Oslo?",
            "single",
            (Need("get_weather", {"city": "lisbon"}), Need("get_weather", {"city": "oslo"})),
        ),
        Task(
            "Search flights from Zurich to Lisbon on Friday and book the cheapest one for Ida "
            "Brandt.",
            "chain",
            (
                Need("search_flights", {"origin": "zurich", "destination": "lisbon"}),
                Need("book_flight", {"flight_id": "LX-318", "passenger": "brandt"}),
            ),
        ),
        Task(
            "Find a hotel in Vienna and book it for 2 nights for Tom Okafor.",
            "chain",
            (
                Need("find_hotel", {"city": "vienna"}),
                Need("book_hotel", {"hotel_id": "H-71", "nights": 2, "guest": "okafor"}),
            ),
        ),
        Task(
            "Set a reminder 'Renew passport' for Tuesday.",
            "single",
            (Need("set_reminder", {"text": "renew passport", "day": "tuesday"}),),
        ),
        Task(
            "Check the weather in Bergen, then set a reminder for Saturday that says how many "
            "degrees it has there.",
            "chain",
            (
                Need("get_weather", {"city": "bergen"}),
                Need("set_reminder", {"text": "9", "day": "saturday"}),
            ),
        ),
        Task(
            "Book a flight from Berlin to Rome on Monday for Eva Lund, then set a reminder for "
            "Sunday with the booking number.",
            "chain",
            (
                Need("search_flights", {"origin": "berlin", "destination": "rome"}),
                Need("book_flight", {"flight_id": "AZ-405", "passenger": "lund"}),
                Need("set_reminder", {"text": "BK-5511", "day": "sunday"}),
            ),
        ),
        Task(
            "Compare the weather in Madrid and in Dublin, find a hotel in the warmer city, and "
            "book it for 3 nights for Mia Keller.",
            "chain",
            (
                Need("get_weather", {"city": "madrid"}),
                Need("get_weather", {"city": "dublin"}),
                Need("find_hotel", {"city": "madrid"}),
                Need("book_hotel", {"hotel_id": "H-22", "nights": 3, "guest": "keller"}),
            ),
        ),
        Task("Which language do people speak in Brazil? Answer in one word.", "none"),
        Task(
            "What is the weather in Bergen?", "single", (Need("get_weather", {"city": "bergen"}),)
        ),
        Task("Find hotels in Dublin.", "single", (Need("find_hotel", {"city": "dublin"}),)),
        Task(
            "Search flights from Berlin to Rome on Monday.",
            "single",
            (Need("search_flights", {"origin": "berlin", "destination": "rome", "day": "monday"}),),
        ),
        Task(
            "Book the flight LX-318 for Noah Stein.",
            "single",
            (Need("book_flight", {"flight_id": "LX-318", "passenger": "stein"}),),
        ),
        Task(
            "Set a reminder 'Call Anna' for Sunday.",
            "single",
            (Need("set_reminder", {"text": "call anna", "day": "sunday"}),),
        ),
        Task(
            "Book the hotel H-45 for 4 nights for Sara Blum.",
            "single",
            (Need("book_hotel", {"hotel_id": "H-45", "nights": 4, "guest": "blum"}),),
        ),
        Task(
            "Is it snowing in Oslo at the moment?",
            "single",
            (Need("get_weather", {"city": "oslo"}),),
        ),
        Task(
            "Set a reminder 'Water the plants' for Monday and another one for Thursday.",
            "trap",
            (
                Need("set_reminder", {"text": "water the plants", "day": "monday"}),
                Need("set_reminder", {"text": "water the plants", "day": "thursday"}),
            ),
        ),
        Task(
            "Check the weather in Dublin. Only if it is sunny there, set a reminder 'Sunglasses' "
            "for Friday.",
            "trap",
            (Need("get_weather", {"city": "dublin"}),),
        ),
        Task(
            "Find a hotel in Dublin and book it for 1 night for Leo Marsh.",
            "chain",
            (
                Need("find_hotel", {"city": "dublin"}),
                Need("book_hotel", {"hotel_id": "H-45", "nights": 1, "guest": "marsh"}),
            ),
        ),
        Task("Which city is farther from Paris: London or Sydney? Answer with one word.", "none"),
        Task("Thank you for your help. Goodbye!", "none"),
    ),
)
