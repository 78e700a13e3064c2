import asyncio

from proxy.agents.hooks import Hooks
from proxy.agents.results import RunEvent, Text
from proxy.conversation.messages import Message, user_message


def test_hooks_may_be_async_or_not_and_all_of_them_may_be_missing() -> None:
    seen: list[object] = []

    async def on_message(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append(message.text)

    def on_chunk(event: RunEvent) -> None:
        seen.append(event)

    async def call(hooks: Hooks) -> None:
        await hooks.committed(user_message("Hi"))
        await hooks.show(Text("Ho"))

    asyncio.run(call(Hooks()))
    assert seen == []
    asyncio.run(call(Hooks(on_message=on_message, on_chunk=on_chunk)))
    assert seen == ["Hi", Text("Ho")]
