"""Saves the prompt caches of a llama-server's slots before it stops; restores them when it starts.

    POST /slots/0?action=save {"filename": "9c1f52ab-4711-0.tmp"}
    {"id_slot": 0, "n_saved": 6333, "n_written": 1722656, ...}
    POST /slots/0?action=restore {"filename": "9c1f52ab-51d3a2e09b7c4f16-0-6333.slot"}
    {"id_slot": 0, "n_restored": 6333, "n_read": 1722656, ...}

If a cache cannot be saved or restored, a line is logged, and the server reads the prompt again
(decision 0035).
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_count, as_integer, as_list, as_object, as_text, member
from proxy.errors import BackendFailed, BackendRefused, BackendReplyInvalid
from proxy.processes.launch import LaunchPlan
from proxy.processes.process import RunningServer
from proxy.processes.slot_files import SavedSlot, SlotFiles, slot_files

logger = logging.getLogger(__name__)

# the status if the build has no such endpoints, or if they do not support the model
_REFUSALS = (HTTPStatus.NOT_FOUND, HTTPStatus.NOT_IMPLEMENTED)
_COMPLETION = "/completion"
_PROBE = " one two three four five six seven eight"
_MOST_SECONDS = 3600.0  # for one request; `SlotCache.seconds` limits all requests together
_MB = 1_000_000


@dataclass(eq=False, slots=True)
class SlotCache:
    """The saved slots of one managed server, in a folder that several servers may share.

    All files in the folder together have at most `most_bytes`. Saving and restoring may each take
    at most `seconds`. Some servers refuse to save or restore, and some read the prompt again
    although they restored its cache. Temper sends no more such requests to a server of either kind,
    even after a restart. Whether a server uses a restored cache is tested when its first cache is
    saved.
    """

    name: str
    folder: Path
    most_bytes: int
    seconds: float
    _is_proven: bool = field(default=False, init=False)
    _is_refused: bool = field(default=False, init=False)

    @asynccontextmanager
    async def keep(self, plan: LaunchPlan, server: RunningServer) -> AsyncGenerator[None, None]:
        """Restore the slots of a server that has just started; save them after the block."""
        client = BackendClient(server.base_url, server.api_key)
        try:
            files = None if self._is_refused else await self._restore(client, plan)
            try:
                yield
            finally:
                if files is not None and not self._is_refused:
                    if server.process.is_running:
                        await self._save(client, files)
                    else:  # the server crashed, and a restored cache may be the reason
                        await self._remove(files.remove_all)
        finally:
            await client.close()

    async def _restore(self, client: BackendClient, plan: LaunchPlan) -> SlotFiles | None:
        """Restore the latest files; return None if slots cannot be saved later."""
        restored: list[SavedSlot] = []
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self.seconds):
                files = await self._find_files(client, plan)
                latest = await asyncio.to_thread(files.saved)
                restored += [saved for saved in latest if await self._restore_slot(client, saved)]
        except (BackendFailed, OSError) as error:  # a TimeoutError is an OSError
            self._note("restored", error)
            return None
        self._is_proven |= bool(restored)
        self._report("restored", restored, time.monotonic() - begun)
        return files

    async def _remove(self, remove: Callable[[], bool]) -> None:
        """Remove files that must not be restored; if one remains, restore none from now on."""
        try:
            is_removed = await asyncio.to_thread(remove)
        except OSError:  # the folder cannot be read
            is_removed = False
        if not is_removed:
            self._is_refused = True
            problem = "%s: saved prompt caches cannot be removed, so none will be restored"
            logger.warning(problem, self.name)

    async def _find_files(self, client: BackendClient, plan: LaunchPlan) -> SlotFiles:
        properties = as_object(await _fetch(client, "/props"))
        build, model = as_text(properties.get("build_info")), as_text(properties.get("model_path"))
        files = await asyncio.to_thread(slot_files, self.folder, plan, build, model)
        await asyncio.to_thread(files.clean, self.most_bytes)
        return files

    async def _restore_slot(self, client: BackendClient, saved: SavedSlot) -> bool:
        """Restore a slot; return whether all its tokens were restored.

        Otherwise the file is removed, and a slot that was restored in part is erased.
        """
        is_complete = False
        try:
            count = (await _act(client, saved.slot, "restore", saved.path.name)).get("n_restored")
            is_complete = as_count(count) == saved.tokens
            if not is_complete:
                problem = "%s: slot %d: restored %d of %d tokens; starting without them"
                logger.warning(problem, self.name, saved.slot, as_count(count), saved.tokens)
                await _act(client, saved.slot, "erase")
        except BackendRefused as refusal:
            if refusal.status in _REFUSALS:
                raise
            problem = "%s: slot %d: prompt cache not restored: %s"
            logger.warning(problem, self.name, saved.slot, refusal.message)
        finally:
            # even if the server crashed or was too slow: the next start must not restore this file
            if not is_complete:
                await self._remove(saved.remove)
        return is_complete

    async def _save(self, client: BackendClient, files: SlotFiles) -> None:
        """Save the idle slots that were used since the start, the latest slot first."""
        saved: list[SavedSlot] = []
        begun, seconds, step = time.monotonic(), 0.0, "saved"
        try:
            async with asyncio.timeout(self.seconds):
                for slot in await _find_used_slots(client):
                    room = self.most_bytes - sum(file.size for file in saved)
                    # each file is one second older than the previous file, because the files are
                    # ordered by this time
                    used = time.time() - len(saved)
                    file = await self._save_slot(client, files, slot, room=room, used=used)
                    if file is not None:
                        saved.append(file)
                        seconds = time.monotonic() - begun
                if saved and not self._is_proven:
                    step = "tested"
                    await self._prove(client, files, saved[0].slot)
        except (BackendFailed, OSError) as error:
            self._note(step, error)
        self._report("saved", saved, seconds)
        with suppress(OSError):
            await asyncio.to_thread(files.clean, self.most_bytes)

    async def _save_slot(
        self, client: BackendClient, files: SlotFiles, slot: int, *, room: int, used: float
    ) -> SavedSlot | None:
        """Save a slot, unless it is empty or its file has more than `room` bytes."""
        temporary = files.temporary(slot)
        try:
            result = await _act(client, slot, "save", temporary.name)
            tokens, size = as_count(result.get("n_saved")), as_count(result.get("n_written"))
            if not tokens:
                return None
            if size > room:
                message = (
                    "%s: slot %d: prompt cache of %d MB not saved: it exceeds prompt_cache.max_mb"
                )
                logger.warning(message, self.name, slot, size // _MB)
                return None
            return await asyncio.to_thread(files.keep, slot, tokens, size, used)
        finally:
            await asyncio.to_thread(temporary.unlink, missing_ok=True)

    def _note(self, action: str, error: BackendFailed | OSError) -> None:
        """Log a failure; set `_is_refused` if the server does not support saving."""
        problem = "it took too long" if isinstance(error, TimeoutError) else str(error)
        is_refusal = isinstance(error, BackendRefused) and error.status in _REFUSALS
        self._is_refused |= is_refusal
        future = "; this server cannot save prompt caches" if is_refusal else ""
        logger.warning("%s: prompt cache not %s: %s%s", self.name, action, problem, future)

    async def _prove(self, client: BackendClient, files: SlotFiles, slot: int) -> None:
        """Check that the server uses a restored cache, with a short prompt in `slot`.

        Some builds restore all tokens and then read the prompt again (llama.cpp issue 26676). The
        prompt replaces the content of the slot, which has been saved.
        """
        temporary = files.temporary(slot)
        request: JsonObject = {"prompt": _PROBE, "n_predict": 0, "id_slot": slot}
        try:
            await _fetch(client, _COMPLETION, json.dump(request))
            count = as_count((await _act(client, slot, "save", temporary.name)).get("n_saved"))
            await _act(client, slot, "erase")
            await _act(client, slot, "restore", temporary.name)
            longer = {**request, "prompt": _PROBE + _PROBE}
            reply = as_object(await _fetch(client, _COMPLETION, json.dump(longer)))
        finally:
            await asyncio.to_thread(temporary.unlink, missing_ok=True)
        self._is_proven = as_count(member(reply, "timings", "cache_n")) > count // 2
        if not self._is_proven:
            self._is_refused = True
            await asyncio.to_thread(files.remove_all)
            problem = "%s: prompt caches are not saved: this server reads restored prompts again"
            logger.warning(problem, self.name)

    def _report(self, action: str, slots: Sequence[SavedSlot], seconds: float) -> None:
        if slots:
            tokens, size = sum(slot.tokens for slot in slots), sum(slot.size for slot in slots)
            message = "%s: prompt cache %s: %d tokens in %d slots, %.1f MB, %.2f s"
            logger.info(message, self.name, action, tokens, len(slots), size / _MB, seconds)


async def _find_used_slots(client: BackendClient) -> list[int]:
    """Return the idle slots that have processed a request, the latest slot first.

    A sleeping server has no caches, and a request for its slots would load the model again.
    """
    if as_object(await _fetch(client, "/props")).get("is_sleeping") is True:
        return []
    tasks: list[tuple[int, int]] = []
    for entry in as_list(await _fetch(client, "/slots")):
        slot = as_object(entry)
        # an unused slot has no task, or the task -1 in older builds
        number, task = as_integer(slot.get("id")), as_integer(slot.get("id_task"))
        is_idle = slot.get("is_processing") is False  # saving a busy slot waits for its request
        if is_idle and number is not None and task is not None and task >= 0:
            tasks.append((task, number))
    return [number for _, number in sorted(tasks, reverse=True)]


async def _act(client: BackendClient, slot: int, action: str, filename: str = "") -> JsonObject:
    """Save, restore or erase a slot; raises subclasses of `BackendFailed`."""
    body: JsonObject = {"filename": filename} if filename else {}
    return as_object(await _fetch(client, f"/slots/{slot}?action={action}", json.dump(body)))


async def _fetch(client: BackendClient, path: str, body: bytes = b"") -> JsonValue:
    response = await client.fetch(path, body, within=_MOST_SECONDS)
    try:
        document = json.parse(response.body)
    except ValueError as error:
        raise BackendReplyInvalid(client.name, "returned no JSON", response.body) from error
    if response.status != HTTPStatus.OK:
        message = as_text(as_object(as_object(document).get("error")).get("message"))
        raise BackendRefused(client.name, response.status, message)
    return document
