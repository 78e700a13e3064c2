"""Faulty engines (`benchmarks.faults`) that store prompts and list the running generations."""

import asyncio
import itertools
from collections import defaultdict

from benchmarks.faults.backend import FaultyBackend
from benchmarks.faults.ledger import Ledger
from benchmarks.faults.material import number_in
from benchmarks.faults.toxics import Caller
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_object
from temper_evals.scenarios.worlds import objects_in
from tests.simulation.network import Endpoint, context_of


class Engines:
    """All engines of a run.

    `prompts` maps the number of a request to the messages of each of its generations.
    """

    def __init__(self, seed: int) -> None:
        self.ledger = Ledger()
        self.prompts: defaultdict[int, list[list[JsonObject]]] = defaultdict(list)
        self.playing: dict[int, Endpoint] = {}  # connection of each running generation
        self.numbers = itertools.count()
        self.seed = seed

    async def start(self, host: str, port: int) -> None:
        serving = asyncio.start_server(Engine(self).serve, host, port)
        await asyncio.get_running_loop().create_task(serving, context=context_of(host))

    def open_generations(self) -> dict[int, str]:
        """Return the host of each generation whose connection neither side has closed."""
        return {number: side.host for number, side in self.playing.items() if side.is_open}


class Engine(FaultyBackend):
    """An engine that Temper did not start; `children` derives the llama-servers from it."""

    def __init__(self, engines: Engines) -> None:
        super().__init__(engines.seed, engines.ledger)
        self._engines = engines

    async def _play(self, caller: Caller, request: bytes) -> None:
        number = number_in(request)
        if number is not None:
            body = as_object(json.parse(request.partition(b"\r\n\r\n")[2]))
            self._engines.prompts[number].append(objects_in(body["messages"]))
        transport = caller.writer.transport
        assert isinstance(transport, Endpoint)
        generation = next(self._engines.numbers)
        self._engines.playing[generation] = transport
        try:
            await super()._play(caller, request)
        finally:
            del self._engines.playing[generation]
