"""Claims beside what was seen here: one line a claim and phone, each saying where ours comes from.

A twin that was fitted to a claim gives it back, more or less: that is a calibration replay, and
never a reproduction. What cannot be observed says why.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.study.catalogue import Ask, Claim, Study, number, with_unit
from orchestrator.study.evidence import NOTHING_RUN, Evidence
from orchestrator.study.kinds import EACH, FLEET, Found, Missing, same_model
from workloads.measure import Source

REPLAY = "calibration replay"
HEADINGS = ("CLAIM", "THEIRS", "PHONE", "OURS", "RUNS", "SOURCE", "READING")


@dataclass(frozen=True)
class Line:
    """One claim, held against one phone, or against all of them together."""

    claim: Claim
    phone: str
    model: str
    found: Found | None
    why: str = ""

    @property
    def ours(self) -> str:
        """What was seen here."""
        if self.found is None:
            return "unavailable"
        found, unit = self.found, self.claim.unit
        if found.span is not None:
            low, high = found.span
            said = number(low) if low == high else f"{number(low)} to {number(high)}"
            return f"{said} {unit}".strip() + f" ({found.words})"
        if found.value is None:
            return f"{found.words} ({found.more})" if found.more else found.words
        spread = f" ±{100 * found.half_rel:.0f} %" if found.half_rel >= 0.005 else ""
        words = f" ({found.words})" if found.words else ""
        return f"{with_unit(found.value, unit)}{spread}{words}"

    @property
    def source(self) -> str:
        """Where ours comes from."""
        return str(self.found.provenance) if self.found else ""

    @property
    def replayed(self) -> bool:
        """Whether ours comes from a model that was fitted to theirs."""
        return (
            self.found is not None
            and self.found.provenance.source is Source.SIMULATED
            and bool(self.claim.fitted)
            and same_model(self.claim.fitted, self.model)
        )

    @property
    def reading(self) -> str:
        """What the two say together."""
        if self.found is None:
            return f"unavailable: {self.why}"
        said = _held_together(self.claim, self.found)
        if self.replayed:
            return f"{REPLAY}, {said}"
        if self.claim.absolute and not same_model(self.claim.own_model, self.model):
            computer = self.found.provenance.source is Source.HOST
            return f"{'a computer' if computer else 'another phone'}, {said}"
        return said

    @property
    def cells(self) -> tuple[str, ...]:
        """The line under HEADINGS."""
        runs = str(self.found.n) if self.found else ""
        theirs = f"{self.claim.theirs} ({self.claim.seen_on})"
        reading = self.reading if self.found else self.why
        return (self.claim.text, theirs, self.model, self.ours, runs, self.source, reading)

    def as_json(self, study: Study) -> dict[str, object]:
        """The line for programs."""
        found = self.found
        return {
            "claim": self.claim.text,
            "theirs": self.claim.theirs,
            "seen_on": self.claim.seen_on,
            "claim_source": study.source_of(self.claim),
            "phone": self.phone,
            "model": self.model,
            "ours": self.ours,
            "value": found.value if found else None,
            "span": found.span if found else None,
            "unit": self.claim.unit,
            "runs": found.n if found else 0,
            "source": self.source,
            "calibration_replay": self.replayed,
            "reading": self.reading,
        }


def answer(study: Study, evidence: Evidence) -> list[Line]:
    """Hold every claim of a study against what was observed."""
    return [line for claim in study.claims for line in _lines(claim, evidence)]


Row = tuple[str, ...]


def said_once(rows: Sequence[Row]) -> list[Row]:
    """Say a claim once, before the phones that it was put to: people read downwards."""
    before: list[Row] = [(), *rows[:-1]]
    return [
        ("", "", *row[2:]) if row[:2] == above[:2] else row
        for above, row in zip(before, rows, strict=True)
    ]


def notes(study: Study, lines: Sequence[Line], kernels: bool) -> list[str]:
    """What has to stand under the table."""
    made = ", ".join(sorted({line.source for line in lines if line.source}))
    theirs = "; ".join(dict.fromkeys(study.source_of(line.claim) for line in lines))
    said = [study.caution, f"Theirs: {theirs}. Ours: {made}; medians over runs."]
    if any(line.found and line.found.half_rel for line in lines):
        said.append(
            "± is half of the 95 % interval, with the model's error where one is known; of fewer "
            "than three runs, half of where they lay."
        )
    if any(line.replayed for line in lines):
        said.append(
            "Calibration replay: the virtual phone was fitted to this very claim, so that it comes "
            "near says how good the fit is, and nothing more."
        )
    if kernels:
        said.append("OpenCL ran on a device of this computer; it says nothing of a phone's GPU.")
    return said


def simulated(lines: Sequence[Line]) -> bool:
    """Whether any of ours was simulated."""
    return any(line.found and line.found.provenance.source is Source.SIMULATED for line in lines)


def _lines(claim: Claim, evidence: Evidence) -> Iterator[Line]:
    ask = claim.on_kernels if evidence.kernels else claim.ask
    if ask is None:
        why = "this is asked of phones: say --lab DIR or --virtual"
        yield Line(claim, "", "this computer", None, why)
    elif ask.kind == "never":
        yield Line(claim, "", "any phone", None, ask.why)
    elif ask.kind in FLEET:
        yield _fleet_line(claim, ask, evidence)
    else:
        yield from _together([_line(claim, ask, evidence, p) for p in _asked(claim, evidence)])


def _together(lines: Sequence[Line]) -> Iterator[Line]:
    """What several phones cannot tell for the same reason is one line."""
    shared = Counter(line.why for line in lines)
    told: set[str] = set()
    for line in lines:
        if line.found is not None or shared[line.why] == 1:
            yield line
        elif line.why not in told:
            told.add(line.why)
            names = ", ".join(each.model for each in lines if each.why == line.why)
            yield replace(line, phone="", model=names)


def _asked(claim: Claim, evidence: Evidence) -> list[str]:
    """The phones that a claim is put to: those of its own model alone, if it holds for no other."""
    phones = sorted(evidence.phones, key=lambda phone: (evidence.phones[phone], phone))
    own = [phone for phone in phones if same_model(claim.own_model, evidence.phones[phone])]
    return own if claim.absolute and own else phones


def _line(claim: Claim, ask: Ask, evidence: Evidence, phone: str) -> Line:
    try:
        return Line(claim, phone, evidence.phones[phone], EACH[ask.kind](ask, evidence, phone))
    except Missing as missing:
        why = ask.without if ask.without and NOTHING_RUN in str(missing) else str(missing)
        return Line(claim, phone, evidence.phones[phone], None, why)


def _fleet_line(claim: Claim, ask: Ask, evidence: Evidence) -> Line:
    count = len(evidence.phones)
    name = "1 phone" if count == 1 else f"{count} phones"
    try:
        return Line(claim, "", name, FLEET[ask.kind](ask, evidence))
    except Missing as missing:
        return Line(claim, "", name, None, str(missing))


def _held_together(claim: Claim, found: Found) -> str:
    if claim.value is not None and found.value is not None:
        if claim.value > 0 and found.value > 0:
            times = found.value / claim.value
            return f"{f'{times:.2f}' if times >= 0.1 else number(times)} × theirs"
        more = found.value - claim.value
        return f"{number(abs(more))} {'more' if more > 0 else 'less'} than theirs"
    if claim.within is not None and (found.span or found.value is not None):
        return _in_range(claim.within, found.span or (found.value or 0.0, found.value or 0.0))
    if claim.least is not None and found.value is not None:
        return "holds" if found.value >= claim.least else "does not hold"
    if claim.word and found.words:
        meant = {word.casefold() for word in (claim.word, *claim.means)}
        return "the same" if found.words.casefold() in meant else "not the same"
    return "they give no number" if claim.theirs == "no number" else "not comparable"


def _in_range(theirs: tuple[float, float], ours: tuple[float, float]) -> str:
    if theirs[0] <= ours[0] and ours[1] <= theirs[1]:
        return "within theirs"
    if ours[1] < theirs[0]:
        return "below theirs"
    if ours[0] > theirs[1]:
        return "above theirs"
    return "partly within theirs"
