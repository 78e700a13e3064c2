"""What a scanner has to tell, in the order of the text, until it is asked for it."""

from proxy.guardrails.rescue.findings import Finding, Prose

_SPACE = " \t\r\n"


class Report:
    """Findings, with prose joined and with what stands behind it held back.

    White space and leaked control tokens are part of the prose only if prose goes on behind them.
    """

    def __init__(self) -> None:
        self._held: list[str] = []
        self._spoken: list[str] = []
        self._findings: list[Finding] = []

    def say(self, text: str) -> tuple[str, str]:
        """Report prose but the white space at its end; return the two parts."""
        body = text.rstrip(_SPACE)
        space = text[len(body) :]
        if body:
            self._spoken += [*self._held, body]
            self._held.clear()
        self.hold(space)
        return body, space

    def hold(self, text: str) -> None:
        """Hold back white space or a control token."""
        if text:
            self._held.append(text)

    def drop_held(self) -> None:
        """Leave out what is held back: a call follows."""
        self._held.clear()

    def take_space(self) -> str:
        """Return what is held back and hold it no more, if it is white space and nothing else."""
        held = "".join(self._held)
        if held.strip(_SPACE):
            return ""
        self._held.clear()
        return held

    def keep_held(self) -> None:
        """Let what is held back be prose."""
        self._spoken += self._held
        self._held.clear()

    def add(self, finding: Finding) -> None:
        """Report what is no prose."""
        self.flush()
        self._findings.append(finding)

    def flush(self) -> None:
        """Let the prose so far be a finding of its own."""
        if self._spoken:
            self._findings.append(Prose("".join(self._spoken)))
            self._spoken.clear()

    def take(self) -> list[Finding]:
        """Return what was reported since the last time."""
        self.flush()
        findings, self._findings = self._findings, []
        return findings
