"""Writes the windows and traces of a run, and counts what was measured."""

from dataclasses import dataclass

from agent.virtual.runner.jsonl_file import JsonlFile
from agent.virtual.runner.run_records import StepShares, trace_records
from agent.virtual.runner.runner_contract import RunSettings


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """Consecutive steps that were timed together."""

    steps: int
    opened_ns: int
    length_ns: int
    shortest_ns: int
    longest_ns: int


class WindowWriter:
    """The part of out.jsonl between the records before the steps and the last one."""

    def __init__(self, output: JsonlFile, settings: RunSettings) -> None:
        self._output = output
        self._settings = settings
        self._trace_count = 0
        self._untraced_from = 0  # the first step after the last traced one
        self.steps = 0  # in closed windows
        self.ns = 0

    def write(self, window: ClosedWindow, shares: StepShares, step_s: float) -> None:
        """Write a window and the traced steps in it; `step_s` is the time of an expected step."""
        # Formatted by hand because a long run writes thousands of these.
        self._output.write_text(
            f'{{"line":"window","first":{self.steps},"n":{window.steps},'
            f'"t_ns":{window.opened_ns},"ns":{window.length_ns},"ns_min":{window.shortest_ns},'
            f'"ns_max":{window.longest_ns},{shares.text(window.length_ns)}}}'
        )
        self._write_traces(window, shares, step_s)
        self.steps += window.steps
        self.ns += window.length_ns

    def _write_traces(self, window: ClosedWindow, shares: StepShares, step_s: float) -> None:
        """Write when the operations of this window's traced steps ended."""
        settings, step_ns = self._settings, window.length_ns / window.steps
        while self._trace_count < settings.trace_steps:
            expected_s = min(settings.seconds, settings.max_seconds)
            expected_steps = max(settings.steps, int(expected_s / step_s))
            distance = max(1, expected_steps // settings.trace_steps)
            # A slowdown shortens the distance; still no step is traced twice.
            step = max(self._trace_count * distance, self._untraced_from)
            if step >= self.steps + window.steps:
                return
            offset = max(step - self.steps, 0)
            load_ns = shares.load * step_ns
            started_ns = window.opened_ns + round(offset * step_ns + load_ns)
            op_ns = shares.ops * (step_ns - load_ns)
            for record in trace_records(self.steps + offset, started_ns, op_ns):
                self._output.write(record)
            self._trace_count += 1
            self._untraced_from = self.steps + offset + 1
