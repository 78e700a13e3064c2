"""Defects to plant in a copy of `proxy`, to check that the simulation finds them.

    python -m tests.simulation --planted           plants one defect after the other

Each row is a file, the code that is replaced, and its replacement.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Planted:
    """A defect: `new` replaces `old`, which must be in the file exactly once."""

    file: str
    old: str
    new: str


FAULTS: Mapping[str, Planted] = {
    "a request that fails keeps its slot": Planted(
        "proxy/serving/admission.py",
        "        self._admission.leave(self._ticket, seconds)",
        "        if kind is None:\n            self._admission.leave(self._ticket, seconds)",
    ),
    "a waiting client that disconnects keeps its ticket": Planted(
        "proxy/serving/admission.py",
        "                self.leave(ticket)\n                raise",
        "                raise",
    ),
    "the generation continues after a disconnect": Planted(
        "proxy/api/answer.py",
        "            await received.connection.while_connected(sending)",
        "            await sending",
    ),
    "a connection is reused before its response was read": Planted(
        "proxy/backends/connection_pool.py",
        "        if connection.is_reusable and not self._is_closed:",
        "        if connection.status and not self._is_closed:",
    ),
    "the end of a stream is sent twice": Planted(
        "proxy/dialects/openai_chat/encode.py",
        "        return sse.DONE",
        "        return sse.DONE + sse.DONE",
    ),
    "an error in a stream is not sent": Planted(
        "proxy/api/streaming.py",
        "        await self._connection.end(self.encoder.fail(describe(error)))",
        '        await self._connection.end(b"")',
    ),
    "one retry too many": Planted(
        "proxy/inference/turn.py",
        "            policy.attempts,\n            disabled,",
        "            policy.attempts + 1,\n            disabled,",
    ),
    "two requests with one idempotency key both run": Planted(
        "proxy/api/idempotency.py",
        "        known = self._answers.get(name)\n        if known is None:",
        "        known = self._answers.get(name)\n        if known is None or not known.size:",
    ),
    "the deadline of a response is ignored": Planted(
        "proxy/api/streaming.py",
        "        self._timeout = asyncio.timeout(self._seconds)",
        "        self._timeout = asyncio.timeout(None)",
    ),
    "a response that has begun is sent to another engine": Planted(
        "proxy/backends/pool.py",
        "                if has_begun or not _should_resend",
        "                if not _should_resend",
    ),
    "the load of an engine is not released after a failure": Planted(
        "proxy/backends/pool.py",
        "        member.breaker.record_success()\n    finally:\n        member.running -= 1",
        "        member.breaker.record_success()\n        member.running -= 1",
    ),
    "one request more than slots is served": Planted(
        "proxy/serving/admission.py",
        "self.served < self._capacity",
        "self.served <= self._capacity",
    ),
    "a slot is returned twice": Planted(
        "proxy/serving/admission.py",
        "        self._admission.leave(self._ticket, seconds)",
        "        self._admission.leave(self._ticket, seconds)\n"
        "        if kind is None:\n            self._admission.leave(self._ticket)",
    ),
    "a streamed request does not wait for a slot": Planted(
        "proxy/api/answer.py",
        "        admission = self.planned.service.admission\n",
        "        admission = self.planned.service.admission\n"
        "        if self.planned.resolved.request.stream:\n"
        "            admission = type(admission)()\n",
    ),
    "a full queue gives no advice": Planted(
        "proxy/api/errors.py",
        '            return replace(problem, headers={"retry-after": str(error.retry_after)})',
        "            return problem",
    ),
    "an idempotency key is valid for all owners": Planted(
        "proxy/api/idempotency.py",
        "    return connection.owner or credentials, key",
        '    return "", key',
    ),
    "a stored response is valid for all owners": Planted(
        "proxy/api/request_reader.py",
        'return Client(scope["state"].get("owner") or key, ',
        'return Client("", ',
    ),
    "a response is continued without its request": Planted(
        "proxy/dialects/openai_responses/store.py",
        "        return [*self.inputs, *self.output]",
        "        return [*self.output]",
    ),
    "a half-closed connection counts as a disconnect": Planted(
        "proxy/api/connections.py",
        "        self._departure.start()\n        return True",
        "        self._departure.start()\n        return None",
    ),
    "a model is stopped while requests use it": Planted(
        "proxy/processes/swapping.py",
        "        if all(map(self._is_idle, blockers)):",
        "        if blockers:",
    ),
    "a lease of a model is not returned": Planted(
        "proxy/processes/fleet.py",
        "            del self._leases[ticket]\n"
        "            self._obey(self.swapping.leave(ticket, now()))",
        "            del self._leases[ticket]",
    ),
    "a model is loaded before the other one has ended": Planted(
        "proxy/processes/supervisor.py",
        "        async with self._alone:  # wait until the owner has stopped the server\n"
        "            pass",
        "        pass",
    ),
    "a restart does not wait": Planted(
        "proxy/processes/supervisor.py",
        "                    await asyncio.sleep(delay)",
        "                    await asyncio.sleep(0)",
    ),
    "a server that ignores SIGTERM is not killed": Planted(
        "proxy/processes/process.py",
        "        await asyncio.sleep(self._grace_seconds)\n        self._kill()",
        "        await asyncio.sleep(self._grace_seconds)",
    ),
    "a torn line of the recording is continued": Planted(
        "proxy/observability/recording.py",
        '            added = b"\\n" + line if _has_incomplete_end(file) else line',
        "            added = line",
    ),
    "a recording ends with the first failed write": Planted(
        "proxy/observability/recording.py",
        "            if os.fstat(file).st_size + len(added) > self._max_bytes:",
        "            if self._losses:\n                return\n"
        "            if os.fstat(file).st_size + len(added) > self._max_bytes:",
    ),
    "lost exchanges are not logged": Planted(
        "proxy/observability/recording.py",
        "        if reason not in self._losses:",
        "        if reason in self._losses:",
    ),
    "a transaction that failed stays open": Planted(
        "proxy/state/responses_table.py",
        "            if self._connection.in_transaction:\n"
        '                self._connection.execute("ROLLBACK")\n            raise',
        "            raise",
    ),
    "lost responses are not logged": Planted(
        "proxy/state/responses_file.py",
        "        if reason != self._last_loss:",
        "        if reason == self._last_loss:",
    ),
    "a response in the file is valid for all owners": Planted(
        "proxy/state/responses_table.py",
        "    return hashlib.blake2b(owner.encode(",
        "    return hashlib.blake2b(owner[:0].encode(",
    ),
    "a prompt cache is restored by another build": Planted(
        "proxy/processes/slot_files.py",
        '        return saved.path.name.startswith(f"{self.owner}-{self.key}-")',
        '        return saved.path.name.startswith(f"{self.owner}-")',
    ),
    "a prompt cache that crashed its server is restored again": Planted(
        "proxy/processes/slot_cache.py",
        "            if not is_complete:\n                await self._remove(saved.remove)",
        "            pass",
    ),
    "the files of prompt caches have no limit": Planted(
        "proxy/processes/slot_files.py",
        "            if is_old or is_outdated or total + saved.size > most_bytes:",
        "            if is_old or is_outdated:",
    ),
    "a prompt cache that is restored too slowly fails the start": Planted(
        "proxy/processes/slot_cache.py",
        "        except (BackendFailed, OSError) as error:  # a TimeoutError is an OSError",
        "        except BackendFailed as error:",
    ),
    "an idempotency key in the store is valid for all owners": Planted(
        "proxy/api/shared_answers.py",
        "            key = (self.language, *name)",
        "            key = (self.language, name[1])",
    ),
    "an outage of the store fails requests": Planted(
        "proxy/api/shared_answers.py",
        "            except (KeyReused, StateUnavailable) as error:",
        "            except KeyReused as error:",
    ),
    "a claim is renewed after the answer": Planted(
        "proxy/state/claims.py",
        "            is_over.set()\n            await renewing",
        "            pass",
    ),
    "an answer is not stored for the other replicas": Planted(
        "proxy/api/shared_answers.py",
        '                self.background.add(claim.finish([*messages[0]["headers"]], body))',
        "                self.background.add(claim.release())",
    ),
    "an error of a waiting stream has the event of another dialect": Planted(
        "proxy/api/shared_answers.py",
        "    if language == CHAT_DIALECT:  # chunks",
        "    if not language:  # chunks",
    ),
    "a worker that died is not replaced": Planted(
        "proxy/api/workers.py",
        "            if worker.ended.is_set():",
        "            if worker.ended.is_set():\n"
        "                self._reap(worker)\n                return\n"
        "            if worker.ended.is_set():",
    ),
    "every death of a worker counts as a failed start": Planted(
        "proxy/api/workers.py",
        "        if self.ready_since is None and not self.problem:\n            self._receive()",
        "        self.ready_since = None",
    ),
    "all workers are replaced at the same time": Planted(
        "proxy/api/workers.py",
        "            elif self._is_outdated(worker) and not self._is_replacing:",
        "            elif self._is_outdated(worker):",
    ),
    "a worker retires before its successor is ready": Planted(
        "proxy/api/workers.py",
        "                await _first_of(new.ready, new.ended, self._is_over)\n"
        "        if new.ready.is_set():",
        "                pass\n        if not new.ended.is_set():",
    ),
    "a worker that retires is killed": Planted(
        "proxy/api/workers.py",
        "        old.send(None)\n",
        "        old.send(None)\n        self._reap(old)\n",
    ),
    "a configuration with which no worker starts stays": Planted(
        "proxy/api/workers.py",
        "            self._configuration = self._proven\n        self._announce_change()",
        "            pass\n        self._announce_change()",
    ),
}
