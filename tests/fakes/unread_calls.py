"""Replies that are calls in spellings that no reader knows, and answers that come close to one."""

from tests.fakes.playbook import CLOCK, WEATHER, make_tool

SEARCH = make_tool(
    "search",
    {
        "type": "object",
        "properties": {"query": {"type": "string"}, "options": {"type": "object"}},
        "required": ["query"],
    },
)
TOOLS = (WEATHER, CLOCK, SEARCH)

# These begin with a mark or a small letter, as the tokens of a template do: nobody sees them.
HELD = (
    'commentary to=functions.get_weather json{"city": "Paris"}',
    'assistantcommentary to=functions.search code{"query": "a", "options": {"since": "2020"}}',
    "<name>get_weather\n</parameter>\n<parameter=city>\nParis\n</parameter>\n</function>",
    "<user>get_weather\n<arg_key>city</arg_key>\n<arg_value>New York, NY</arg_value>\n</user>",
    "get_weather{city: Paris}",
    "tool_call: get_weather(city='Paris', days=3)",
    "[get_weather city=Paris]",
    '[tool:search]\nquery: "two words"\n[/tool]',
    "<<get_weather|city=Paris>>",
    '<call tool="get_weather"><city>Paris</city></call>',
    '<tool name="get_weather" city="Paris"/>',
    '<tool id="7" type="weather" name="get_weather"><param type="text" name="city">Oslo</param>',
    '<|plugin|>search<|args|>{"query": "weather"}<|done|>',
    '{"tool_to_use": "get_weather", "city": "Paris", "days": 2}',
    "functions.get_weather:0{city := Paris, days => 2}",
    '@get_weather(city "Paris")',
    "```tool_code_call\nget_weather city=Paris\n```",
    'tool=get_weather;args={"city": "Paris"}\ntool=search;args={"query": "Paris"}',
    "to=functions.get_time json{}",
    "<function>get_time</function>",
)
# These begin with a capital letter, as prose does.
SEEN = (
    "Action: get_weather[city=Paris]",
    'CALL get_weather {"city": "Paris"}',
    'Calling get_weather with {"city": "Paris"}',
)
CALLS = (*HELD, *SEEN)
ANSWERS = (
    "It is sunny in Paris (20 degrees)",
    "get_weather tells the weather of a city, e.g. get_weather(city='Paris')",
    "get_weather(city: str, days: int)",
    "get_weather(city, days)",
    "get_weather(city=<city>)",
    "get_weather(city=YOUR_CITY, days=your_days)",
    'get_weather(city="...")',
    "<get_weather><city>{city}</city></get_weather>",
    "<get_weather><city>Paris</city></get_weather> is a call.",
    'Call get_weather(city="Paris")',
    "function get_weather(city = 'Paris') {}",
    "result = get_weather(city='Paris')",
    "print(get_weather(city='Paris'))",
    "```python\nget_weather(city='Paris')\n```",
    "```\nget_weather(city='Paris')\n```",
    "```tool_call\nget_weather(city='Paris')\n```\nThat is a call: ```get_weather()```",
    '{"get_weather": {"city": "Paris", "degrees": 20}}',
    '{"weather": {"city": "Paris"}}',
    '{"search": {"query": "Paris"}}',
    '{"tool": "get_time", "parameters": {}}',
    '{"tool": "get_weather", "city": "Paris", "degrees": 20}',
    '{"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}}',
    '{"answer": "get_weather", "city": "Paris"}',
    '<config><tool>get_weather</tool><city unit="c">Paris</city></config>',
    '<call tool="get_weather" city="<city>"/>',
    '<call tool="get_weather"><param name="town">Paris</param></call>',
    "<div>search</div><query>Paris</query>",
    "<b>get_weather</b> <i>city</i>",
    'search(query="Paris"',
    'search(query="Paris")',
    "- get_weather(city='Paris')\n- get_time()",
    "1. get_weather(city='Paris')",
    "get_weather(city='Paris') get_weather(city='Oslo')",
    "get_time()",
    "get_weather{}",
    "tool_call: get_weather()",
    "get_weather{city: Paris is a city that I like a lot, as do many}",
    "get_weather{city: Paris} really? }",
    'get_weather{"city": "Paris}',
    "get_weather<parameter=city>Paris>",
    "tool_call: launch_rocket(city='Paris')",
    "tool_call: Paris {get_weather city=Paris}",
    '["Paris", "get_weather"]',
    '{"type": "get weather", "city": "Paris"}',
    f"{'tool ' * 40}get_weather(city='Paris')",
    f"get_weather({'city=1, ' * 400})",
    "",
    "}",
)
