"""Answers the questions that a sweep can answer: its axes choose them.

Each answer is a sentence with the figure that shows it. An answer that the runs cannot give is left
out. Values are of one cell that every phone has, never a mean over cells: a reader finds them in
the tables.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.analysis.cell_axes import (
    BACKEND,
    CORES,
    FREQ,
    PROTOCOL,
    WORKLOAD,
    CellAxis,
    SettingValue,
)
from orchestrator.analysis.fleet_ranking import FleetGroup
from orchestrator.export.report.charts import DotMark, DotRow, SlopeRow, draw_dots, draw_slopes
from orchestrator.export.report.figure import Figure, file_name, number_text, percent_text
from orchestrator.export.report.report_data import (
    ENERGY,
    ModelValue,
    ReportData,
    readable_unit,
    unit_of,
)
from workloads.protocol.condition import Protocol
from workloads.text import list_text

FINDINGS_MAX = 5
MODELS_MAX = 12  # rows of a small figure or table
ROUND = 3  # phones of a federated round
TIE = 0.02  # phones closer than this are not told apart
GPU_FREQ, BATCH = "gpu_freq", "batch_size"
HARDWARE = (CORES, FREQ, GPU_FREQ)
FIRST, SECOND = 0, 1  # styles


@dataclass(frozen=True)
class Answer:
    """A question of the sweep with its answer; the title says the same in a few words."""

    question: str
    verdict: str
    sentence: str
    title: str
    figure: Figure
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def sweep_answers(data: ReportData) -> list[Answer]:
    """Return what this sweep answers, the question of its axes first."""
    if not any(data.groups(protocol) for protocol in Protocol):
        return []
    found = [answer for find in _questions(data) if (answer := find()) is not None]
    titles: dict[str, Answer] = {}
    for answer in found:
        titles.setdefault(answer.title, _without_empty_columns(answer))
    return list(titles.values())[: FINDINGS_MAX + 1]


def _without_empty_columns(answer: Answer) -> Answer:
    kept = [i for i in range(len(answer.headings)) if any(row[i] != "–" for row in answer.rows)]
    rows = tuple(tuple(row[i] for i in kept) for row in answer.rows)
    return replace(answer, headings=tuple(answer.headings[i] for i in kept), rows=rows)


def _questions(data: ReportData) -> Iterator[Callable[[], Answer | None]]:
    by_name = {axis.name: axis for axis in data.axes}
    if PROTOCOL in by_name:
        yield lambda: heat_order(data)
    if any(name in by_name for name in HARDWARE):
        yield lambda: best_setting(data)
        yield lambda: frugal_setting(data)
    if WORKLOAD in by_name:
        yield lambda: model_winners(data, by_name[WORKLOAD])
    others = [axis for axis in data.axes if axis.name not in (*HARDWARE, PROTOCOL, WORKLOAD)]
    others.sort(key=lambda axis: axis.name != BACKEND)
    yield from ((lambda axis=axis: axis_effect(data, axis)) for axis in others)
    yield lambda: heat_cost(data)
    yield lambda: cohort(data)
    is_plain = not any(name in by_name for name in HARDWARE)
    if is_plain and PROTOCOL not in by_name:
        yield lambda: fastest_phone(data)
    yield lambda: unit_spread(data)
    if is_plain:
        yield lambda: least_energy(data)


def main_group(data: ReportData, *protocols: Protocol) -> FleetGroup | None:
    """Return the cell that most models have, and of those the one with the longest step."""
    groups = [group for protocol in protocols for group in data.groups(protocol)]
    cpu = [group for group in groups if group.case.backend == "cpu"] or groups
    return max(
        cpu,
        key=lambda g: (len({row.model for row in g.rows}), max(row.median for row in g.rows)),
        default=None,
    )


def first_protocol(data: ReportData) -> Protocol:
    """Return the protocol with most cells, cold if it is one of them."""
    return max(Protocol, key=lambda protocol: len(data.groups(protocol)))


def cell_text(group: FleetGroup, data: ReportData) -> str:
    """Return a cell in words: the settings that this sweep varies, and its model."""
    varied = {axis.name for axis in data.axes}
    settings = group.settings
    shown = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in settings.items()
        if name in varied and name not in (WORKLOAD, PROTOCOL, *HARDWARE)
    ]
    condition = group.condition
    return ", ".join([group.case.name, *shown, f"{condition.cores} {condition.freq}"])


def leaders(values: Mapping[str, ModelValue]) -> list[str]:
    """Return the models that are too close to the first to be told apart, the first included."""
    ordered = list(values.values())
    first = ordered[0]
    limit = max(first.value * (1 + TIE), first.high)
    return [one.model for one in ordered if one.value <= limit and one.low <= limit]


def joined(names: Sequence[str]) -> str:
    """Join names for a sentence."""
    if len(names) > 4:
        return list_text(names, 3)
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def span_text(values: Sequence[float]) -> str:
    """Format the least and the largest of some values."""
    low, high = number_text(min(values)), number_text(max(values))
    return low if low == high else f"{low} to {high}"


def heat_order(data: ReportData) -> Answer | None:
    """Answer whether the fastest phone stays fastest."""
    pair = heated_pair(data)
    if pair is None:
        return None
    cold_group, _, cold, hot = pair
    when = hot_words(pair[1])
    ordered = sorted(cold, key=lambda model: hot[model].value)
    first, best = next(iter(cold)), ordered[0]
    styles = {first: SECOND, best: FIRST}
    rows = [
        SlopeRow(
            model,
            cold[model].value,
            hot[model].value,
            f"{model}: {cold[model].text} ms cold, {hot[model].text} ms {when}",
            styles.get(model),
        )
        for model in ordered[:MODELS_MAX]
    ]
    cell = cell_text(cold_group, data)
    figure = Figure(
        "cold-and-hot",
        f"Step time cold and {when}",
        f"Milliseconds per step when cold and {when}, one line per phone ({cell}).",
        lambda width: [draw_slopes(width, rows, ("cold, ms", f"{when}, ms"))],
        ("phone", "cold, ms per step", f"{when}, ms per step"),
        tuple((model, cold[model].value, hot[model].value) for model in ordered),
    )
    verdict, sentence = _heat_sentence(cold, {m: hot[m] for m in ordered}, when)
    headings, table = _heat_table(data, pair, ordered)
    question = "Does the fastest phone stay fastest?" if len(cold) > 1 else "What does heat cost?"
    return Answer(question, verdict, sentence, "The cold ranking", figure, headings, table)


def hot_words(group: FleetGroup) -> str:
    """Say when a hot cell was measured."""
    is_long = group.condition.protocol is Protocol.ENDURANCE
    return "after ten minutes" if is_long else "in steady heat"


HeatedPair = tuple[FleetGroup, FleetGroup, dict[str, ModelValue], dict[str, ModelValue]]


def heated_pair(data: ReportData) -> HeatedPair | None:
    """Return a cell that was run cold and hot, with the models that have both."""
    hot_groups = [g for p in (Protocol.ENDURANCE, Protocol.SOAKED) for g in data.groups(p)]
    pairs = []
    for hot_group in hot_groups:
        wanted = hot_group.condition.model_copy(update={"protocol": Protocol.COLD})
        for cold_group in data.groups(Protocol.COLD):
            same = (cold_group.case.label, cold_group.condition.label)
            if same == (hot_group.case.label, wanted.label):
                cold, hot = data.values(cold_group), data.values(hot_group)
                both = {model: cold[model] for model in cold if model in hot}
                pairs += [(cold_group, hot_group, both, hot)] if both else []
    cpu = [pair for pair in pairs if pair[0].case.backend == "cpu"] or pairs
    weight = [(len(pair[2]), max(v.value for v in pair[2].values())) for pair in cpu]
    return cpu[weight.index(max(weight))] if cpu else None


def _heat_sentence(
    cold: Mapping[str, ModelValue], hot: Mapping[str, ModelValue], when: str
) -> tuple[str, str]:
    first, best = next(iter(cold)), next(iter(hot))
    slower = number_text(hot[first].value / cold[first].value)
    if len(cold) == 1:
        text = f"{first} needs {number_text(cold[first].value)} ms per step cold and"
        return "", f"{text} {number_text(hot[first].value)} ms {when}, {slower} times as long."
    tied = leaders(cold)
    if len(tied) > 1:
        values = span_text([cold[model].value for model in tied])
        text = f"Cold, {joined(tied)} are too close to tell apart ({values} ms per step). "
    else:
        text = f"Cold, {first} leads with {number_text(cold[first].value)} ms per step. "
    hot_tied = leaders(hot)
    still = " still" if first == best and len(tied) == 1 else ""
    lead = f"{best}{still} leads with {number_text(hot[best].value)} ms"
    if len(hot_tied) > 1:
        values = span_text([hot[model].value for model in hot_tied])
        lead = f"{joined(hot_tied)} are too close to tell apart ({values} ms)"
    text += f"{when.capitalize()}, {lead}"
    if first == best or first in hot_tied:
        return ("Yes." if first == best else "Nearly."), f"{text}."
    return "No.", f"{text}, and {first}, which was first, takes {slower} times as long as cold."


def _heat_table(
    data: ReportData, pair: HeatedPair, ordered: Sequence[str]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    _, hot_group, cold, hot = pair
    energy = data.values(hot_group, ENERGY)
    unit, factor = readable_unit(unit_of(ENERGY), (value.value for value in energy.values()))
    peak = data.model_median(hot_group, "peak_temp_c")
    rows = []
    for model in ordered[:MODELS_MAX]:
        joules = number_text(energy[model].value * factor) if model in energy else "–"
        heat = f"{peak[model]:.0f}" if model in peak else "–"
        row = (model, number_text(cold[model].value), number_text(hot[model].value), joules, heat)
        rows.append(row)
    hot_head = "10 min, ms" if hot_group.condition.protocol is Protocol.ENDURANCE else "hot, ms"
    return ("phone", "cold, ms", hot_head, f"energy, {unit}/sample", "peak, °C"), tuple(rows)


def heat_cost(data: ReportData) -> Answer | None:
    """Say how much time heat costs each phone."""
    pair = heated_pair(data)
    if pair is None or len(pair[2]) < 2:
        return None
    _, hot_group, cold, hot = pair
    ratios = {model: hot[model].value / cold[model].value for model in cold}
    ordered = sorted(ratios, key=lambda model: ratios[model])
    least, most = ordered[0], ordered[-1]
    peak = data.model_median(hot_group, "peak_temp_c")
    warm = f" and gets no warmer than {peak[least]:.0f} °C" if least in peak else ""
    sentence = f"{least} loses least{warm}. {most} loses most."
    low, high = percent_text(ratios[least]), percent_text(ratios[most])
    rows = [
        DotRow(model, [DotMark(ratios[model], FIRST if model == least else None, model)])
        for model in ordered[:MODELS_MAX]
    ]
    rows = [replace(row, text=percent_text(ratios[row.name])) for row in rows]
    title = f"Heat costs {low} to {high}".replace("+", "")
    figure = _dots(f"Heat costs, {hot_words(hot_group)}", rows, "times the cold step time")
    return Answer("What does heat cost?", "", sentence, title, figure)


def _dots(title: str, rows: Sequence[DotRow], axis: str, caption: str = "") -> Figure:
    table = tuple((row.name, mark.value, mark.low, mark.high) for row in rows for mark in row.marks)
    return Figure(
        file_name(title),
        title,
        caption or f"{title}: {axis}.",
        lambda width: [draw_dots(width, rows, axis)],
        ("row", axis, "low", "high"),
        table,
    )


def cohort(data: ReportData) -> Answer | None:
    """Say whether the cold ranking chooses the right phones for a round."""
    pair = heated_pair(data)
    if pair is None or len(pair[2]) <= ROUND:
        return None
    _, _, cold, hot = pair
    chosen = list(cold)[:ROUND]
    best = sorted(cold, key=lambda model: hot[model].value)[:ROUND]
    planned = max(cold[model].value for model in chosen)
    takes = max(hot[model].value for model in chosen)
    needs = max(hot[model].value for model in best)
    title = f"A round of three takes {number_text(takes / planned)} times its cold plan"
    sentence = (
        f"A round lasts as long as its slowest phone. {joined(chosen)}, the fastest when cold, are "
        f"planned for {number_text(planned)} ms per step and take {number_text(takes)} ms hot"
    )
    same = set(chosen) == set(best)
    sentence += "." if same else f"; {joined(best)} take {number_text(needs)} ms."
    bars = [("planned from cold", planned, None), ("taken when hot", takes, SECOND)]
    bars += [] if same else [("best three when hot", needs, FIRST)]
    rows = [DotRow(n, [DotMark(v, style, n)], number_text(v)) for n, v, style in bars]
    figure = _dots("A round of three phones", rows, "ms per step of the slowest phone")
    return Answer("Which three phones for a round?", "", sentence, title, figure)


def fastest_phone(data: ReportData) -> Answer | None:
    """Say which phone is fastest in the main cell."""
    group = main_group(data, first_protocol(data))
    values = data.values(group) if group is not None else {}
    if group is None:
        return None
    tied = leaders(values)
    first, last = values[tied[0]], list(values.values())[-1]
    unit, factor = readable_unit("ms", (value.value for value in values.values()))
    first, last = first.times(factor), last.times(factor)
    value = f"{number_text(first.value)} {unit} per step"
    if len(values) == 1:
        verdict, sentence = "", f"{first.model} needs {value} ({first.spread})."
        title = f"{first.model}: {value}"
    elif len(tied) > 1:
        shown = span_text([values[model].value * factor for model in tied])
        verdict = "Too close to tell."
        sentence = f"{joined(tied)} need {shown} {unit} per step."
        title = f"{joined(tied)} are the fastest"
    else:
        times = number_text(last.value / first.value)
        verdict = f"{first.model}."
        sentence = f"It needs {value}, and {last.model}, the slowest, {times} times as long."
        title = f"{first.model} is the fastest"
    rows = [_value_row(value.times(factor), value.model in tied) for value in values.values()]
    rows = rows[:MODELS_MAX]
    cell = cell_text(group, data)
    figure = _dots("Step time by phone", rows, f"step time, {unit}", f"Step time of {cell}.")
    question = "Which phone is fastest?" if len(values) > 1 else "How fast is this phone?"
    headings, table = _phone_table(data, group, values, unit, factor)
    return Answer(question, verdict, sentence, title, figure, headings, table)


def _value_row(value: ModelValue, is_first: bool) -> DotRow:
    style = FIRST if is_first else None
    if len(value.units) > 1:
        marks = [
            DotMark(unit, style, f"{value.model}: {number_text(unit)}") for unit in value.units
        ]
        return DotRow(f"{value.model} ({len(value.units)})", marks, number_text(value.value))
    tip = f"{value.model}: {value.text} ({value.provenance})"
    mark = DotMark(value.value, style, tip, *value.known_ends)
    return DotRow(value.model, [mark], number_text(value.value))


def _phone_table(
    data: ReportData,
    group: FleetGroup,
    values: Mapping[str, ModelValue],
    unit: str,
    factor: float,
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    energy = data.values(group, ENERGY)
    joule, by = readable_unit(unit_of(ENERGY), (value.value for value in energy.values()))
    rows = tuple(
        (
            model,
            value.ghz or "–",
            number_text(value.value * factor),
            number_text(energy[model].value * by) if model in energy else "–",
            str(value.runs),
        )
        for model, value in list(values.items())[:MODELS_MAX]
    )
    return ("phone", "clock, GHz", f"step, {unit}", f"energy, {joule}/sample", "runs"), rows


def unit_spread(data: ReportData) -> Answer | None:
    """Say how far apart phones of one model are."""
    group = main_group(data, first_protocol(data))
    values = data.values(group) if group is not None else {}
    several = [value for value in values.values() if len(value.units) > 1]
    if not several:
        return None
    widest = max(several, key=lambda value: value.high / value.low)
    rows = [_value_row(value, value is widest) for value in several[:MODELS_MAX]]
    title = f"Phones of one model differ by up to {widest.high / widest.low - 1:.0%}"
    title = title.replace("%", " %")
    sentence = (
        f"{len(widest.units)} phones of the model {widest.model} need {number_text(widest.low)} to "
        f"{number_text(widest.high)} ms per step."
    )
    figure = _dots("Phones of one model", rows, "step time, ms")
    return Answer("How far apart are phones of one model?", "", sentence, title, figure)


def least_energy(data: ReportData) -> Answer | None:
    """Say which phone needs the least energy."""
    long_ones = [p for p in (Protocol.ENDURANCE, Protocol.SOAKED) if data.groups(p, ENERGY)]
    group = main_group(data, *(long_ones[:1] or [Protocol.COLD]))
    values = data.values(group, ENERGY) if group is not None else {}
    if group is None or len(values) < 2:
        return None
    unit, factor = readable_unit(unit_of(ENERGY), (value.value for value in values.values()))
    shown = [value.times(factor) for value in values.values()]
    first, last = shown[0], shown[-1]
    tied = leaders({value.model: value for value in shown})
    if len(tied) == len(shown):
        return None
    times = number_text(last.value / first.value)
    rows = [_value_row(value, value.model in tied) for value in shown[:MODELS_MAX]]
    names = joined(tied)
    title = f"{names} {'need' if len(tied) > 1 else 'needs'} the least energy"
    sentence = f"{first.model} needs {number_text(first.value)} {unit} per sample, {last.model} "
    sentence += f"{times} times as much."
    figure = _dots("Energy per sample", rows, f"energy per sample, {unit}")
    return Answer("Which phone needs the least energy?", "", sentence, title, figure)


@dataclass(frozen=True)
class SettingTime:
    """A value of one model with the setting it was measured at."""

    setting: str
    value: ModelValue
    group: FleetGroup

    @property
    def text(self) -> str:
        """The setting with its clock."""
        return f"{self.setting}{f', {self.value.ghz} GHz' if self.value.ghz else ''}"


def hardware_settings(data: ReportData, metric: str = "") -> dict[str, list[SettingTime]]:
    """Return every setting of cores and clocks of the main case, by model, the best first."""
    groups = data.groups(first_protocol(data), metric)
    cpu = [group for group in groups if group.case.backend == "cpu"] or groups
    cases = Counter(group.case.label for group in cpu)
    if not cases:
        return {}
    case = max(cases, key=lambda label: (cases[label], label))
    names = [axis.name for axis in data.axes if axis.name in HARDWARE]
    found: dict[str, list[SettingTime]] = {}
    for group in cpu:
        if group.case.label == case:
            setting = " ".join(str(group.settings[name]) for name in names)
            for model, value in data.values(group).items():
                found.setdefault(model, []).append(SettingTime(setting, value, group))
    for settings in found.values():
        settings.sort(key=lambda one: one.value.value)
    return dict(sorted(found.items(), key=lambda item: item[1][0].value.value))


def best_setting(data: ReportData) -> Answer | None:
    """Say which cores and clock are fastest, and which phone leads at its best."""
    by_model = {m: s for m, s in hardware_settings(data).items() if len(s) > 1}
    if not by_model:
        return None
    names = {axis.name for axis in data.axes}
    wins = Counter(settings[0].setting for settings in by_model.values())
    winner, count = wins.most_common(1)[0]
    phones = len(by_model)
    where = "on every phone" if count == phones > 1 else f"on {count} of {phones} phones"
    best = {model: settings[0].value for model, settings in by_model.items()}
    worst = [s[-1].value.value / s[0].value.value for s in by_model.values()]
    tied = leaders(best)
    lead = f"At its best, {tied[0]} leads with {number_text(best[tied[0]].value)} ms per step"
    if len(tied) > 1:
        values = span_text([best[model].value for model in tied])
        lead = f"At their best, {joined(tied)} are too close to tell apart ({values} ms per step)"
    if phones == 1:
        model, settings = next(iter(by_model.items()))
        where, lead = (
            "",
            f"{model} needs {settings[0].value.text} ms per step at {settings[0].text}",
        )
    sentence = (
        f"{'Fastest ' if where else ''}{where}{'. ' if where else ''}{lead}, and the slowest "
    )
    sentence += f"setting takes {span_text(worst)} times as long."
    rows = [
        DotRow(
            model,
            [_setting_mark(one, FIRST if one is settings[0] else None) for one in settings[::-1]],
            f"{number_text(settings[0].value.value)} {settings[0].setting}",
        )
        for model, settings in list(by_model.items())[:MODELS_MAX]
    ]
    table = tuple(
        (
            *(model, s[0].setting, s[0].value.ghz or "–", number_text(s[0].value.value)),
            *(s[-1].setting, number_text(s[-1].value.value)),
        )
        for model, s in list(by_model.items())[:MODELS_MAX]
    )
    both = CORES in names and (FREQ in names or GPU_FREQ in names)
    question = "Which cores and clock are fastest?" if both else "What does a higher clock buy?"
    question = "Which cores are fastest?" if not both and CORES in names else question
    title = f"{winner} is fastest {where}".strip()
    figure = _dots("Step time at every setting", rows, "step time, ms; in colour: the best")
    headings = ("phone", "fastest", "GHz", "ms", "slowest", "ms")
    return Answer(question, f"{winner}.", sentence, title, figure, headings, table)


def _setting_mark(one: SettingTime, style: int | None) -> DotMark:
    return DotMark(one.value.value, style, f"{one.text}: {one.value.text}")


def frugal_setting(data: ReportData) -> Answer | None:
    """Say how much energy another setting than the fastest saves."""
    by_model = hardware_settings(data)

    def energies(one: SettingTime) -> dict[str, ModelValue]:
        return data.values(one.group, ENERGY)

    rows, savings = [], {}
    known = [v.value for s in by_model.values() for one in s for v in energies(one).values()]
    unit, by = readable_unit(unit_of(ENERGY), known)
    for model, settings in by_model.items():
        joules = [(one, energies(one)[model]) for one in settings if model in energies(one)]
        if len(joules) < 2 or joules[0][0] is not settings[0]:
            continue
        least = min(joules, key=lambda pair: pair[1].value)
        saved = 1 - least[1].value / joules[0][1].value
        times = least[0].value.value / settings[0].value.value
        savings[model] = (saved, least[0], times)
        styles = {id(settings[0]): SECOND, id(least[0]): FIRST}
        joules.sort(key=lambda pair: id(pair[0]) in styles)  # in colour above the others
        marks = [DotMark(j.value * by, styles.get(id(one)), one.text) for one, j in joules]
        rows.append(DotRow(model, marks, f"{number_text(least[1].value * by)} {least[0].setting}"))
    saving = {model: item for model, item in savings.items() if item[0] > TIE}
    if not savings:
        return None
    figure = _dots("Energy at every setting", rows[:MODELS_MAX], f"energy per sample, {unit}")
    figure = replace(figure, legend=(("least energy", "d0"), ("fastest", "d1")))
    question = "Does speed cost energy?"
    if not saving:
        title = "The fastest setting is also the most frugal"
        return Answer(question, "No.", "No phone saves energy at another one.", title, figure)
    model = max(saving, key=lambda name: saving[name][0])
    saved, one, times = saving[model]
    sentence = (
        f"{model} saves {saved:.0%} at {one.text}, where a step takes {number_text(times)} times "
        f"as long. {len(saving)} of {len(savings)} phones save energy below their fastest setting."
    ).replace("%", " %")
    return Answer(question, "Yes.", sentence, "Speed costs energy", figure)


def axis_effect(data: ReportData, axis: CellAxis) -> Answer | None:
    """Say which value of an axis is fastest, and what the others cost."""
    cells = _cells_over(data, axis)
    if not cells:
        return None
    ratios: dict[str, dict[SettingValue, list[float]]] = {}
    wins: Counter[SettingValue] = Counter()
    for model, times in cells:
        best = min(times.values())
        wins[min(times, key=lambda value: times[value])] += 1
        for value, time in times.items():
            ratios.setdefault(model, {}).setdefault(value, []).append(time / best)
    rows = [
        DotRow(
            model,
            [
                DotMark(ratio, axis.values.index(value), f"{axis.plain_title} {value}")
                for value, found in values.items()
                for ratio in found
            ],
            f"{number_text(max(r for found in values.values() for r in found))} ×",
        )
        for model, values in list(ratios.items())[:MODELS_MAX]
    ]
    legend = tuple(
        (f"{axis.plain_title} {value}", f"d{index}") for index, value in enumerate(axis.values)
    )
    title = f"Effect of {axis.plain_title}"
    what = "time per sample" if axis.name == BATCH else "step time"
    figure = _dots(title, rows, f"times the {what} of the best")
    winner, count = wins.most_common(1)[0]
    others = [value for value in axis.values if value != winner]
    found = {v: [max(by[v]) for by in ratios.values() if v in by] for v in others}
    loser = max((v for v in others if found[v]), key=lambda v: max(found[v]))
    words = _axis_words(axis, winner, loser, (count, len(cells)), found[loser])
    return Answer(*words, figure=replace(figure, legend=legend[:8]))


def _axis_words(
    axis: CellAxis,
    winner: SettingValue,
    loser: SettingValue,
    wins: tuple[int, int],
    worst: Sequence[float],
) -> tuple[str, str, str, str]:
    """Return question, verdict, sentence and title."""
    count, cells = wins
    times = f"{span_text(worst)} times as long"
    if axis.name == BACKEND and len(axis.values) == 2:
        if winner == "cpu" and count == cells:
            title, verdict = "The GPU never pays here", "Never here."
            sentence = f"On every phone a step takes {times} on the GPU as on the CPU."
        elif winner != "cpu" and count == cells:
            title, verdict = "The GPU always pays here", "Always here."
            sentence = f"On every phone a step takes {times} on the CPU as on the GPU."
        else:
            on_gpu = count if winner != "cpu" else cells - count
            title, verdict = f"The GPU pays in {on_gpu} of {cells} cells", "Sometimes."
            sentence = f"The slower of the two takes up to {number_text(max(worst))} times as long."
        return "Does the GPU pay?", verdict, sentence, title
    name = axis.plain_title
    where = "everywhere" if count == cells else f"in {count} of {cells} cells"
    what = "a sample" if axis.name == BATCH else "a step"
    sentence = f"With {name} {loser}, {what} takes {times}."
    title = f"{name} {winner} is fastest {where}".capitalize()
    return f"What does {name} change?", f"{name} {winner}.".capitalize(), sentence, title


def _cells_over(data: ReportData, axis: CellAxis) -> list[tuple[str, dict[SettingValue, float]]]:
    """Return the times over an axis for every model, all else equal."""
    groups = [group for protocol in Protocol for group in data.groups(protocol)]
    known = [group for group in groups if axis.name in group.settings]
    # What only some cells have follows from this axis: the GPU has options that the CPU has not.
    shared = set.intersection(*(set(group.settings) for group in known)) - {axis.name}
    found: dict[tuple[str, str], dict[SettingValue, float]] = {}
    for group in known:
        at = group.settings[axis.name]
        rest = str([(name, group.settings[name]) for name in sorted(shared)])
        for model, value in data.values(group).items():
            time = value.value / float(at) if axis.name == BATCH else value.value
            times = found.setdefault((model, rest), {})
            times[at] = min(time, times.get(at, time))
    return [(model, times) for (model, _), times in found.items() if len(times) > 1]


def model_winners(data: ReportData, axis: CellAxis) -> Answer | None:
    """Say which phone is fastest for which model."""
    winners: dict[str, str] = {}
    rows = []
    for workload in axis.values:
        own = [g for g in data.groups(first_protocol(data)) if g.case.name == workload]
        cpu = [g for g in own if g.case.backend == "cpu"] or own
        if cpu:
            group = max(cpu, key=lambda g: (len(g.rows), max(row.median for row in g.rows)))
            values = data.values(group)
            first = next(iter(values.values()))
            winners[str(workload)] = first.model
            marks = [
                DotMark(
                    v.value / first.value, FIRST if v is first else None, f"{v.model}: {v.text}"
                )
                for v in list(values.values())[::-1]
            ]
            rows.append(DotRow(str(workload), marks, first.model))
    if len(winners) < 2 or len(set(data.names.values())) < 2:
        return None
    counts = Counter(winners.values())
    model, count = counts.most_common(1)[0]
    every = "every model" if count == len(winners) else f"{count} of {len(winners)} models"
    others = [f"{name} for {number}" for name, number in counts.most_common()[1:4]]
    sentence = f"{joined(others).capitalize()}. " if others else ""
    slowest = span_text([row.marks[0].value for row in rows])
    sentence += f"The slowest phone takes {slowest} times as long as the fastest."
    title = f"{model} is fastest for {every}"
    figure = _dots("Phones by model", rows[:MODELS_MAX], "times the step time of the fastest phone")
    table = tuple((row.name, row.text) for row in rows[:MODELS_MAX])
    question = "Which phone for which model?"
    return Answer(question, f"{model}.", sentence, title, figure, ("model", "fastest phone"), table)
