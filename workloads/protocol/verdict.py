"""The verdict on a run: valid, suspect or void, with one coded reason per objection.

Agents write codes and values, and programs decide on the codes. Only `reason_text` turns a reason
into a sentence.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from string import Formatter
from typing import Annotated, Self, get_args

from pydantic import Field

from workloads.protocol.base import WireModel
from workloads.protocol.metrics import Family


class Validity(StrEnum):
    """Whether a run counts."""

    VALID = "valid"  # it counts
    SUSPECT = "suspect"  # it does not count and is not repeated
    VOID = "void"  # it does not count and is repeated


class ReasonCode(StrEnum):
    """Every objection to a run, and every remark."""

    PHONE_RESTARTED = "phone_restarted"
    # Did the run do the work of its workload?
    LOSS_MISSING = "loss_missing"
    LOSS_NOT_FINITE = "loss_not_finite"
    LOSS_TOO_FEW_STEPS = "loss_too_few_steps"
    LOSS_DID_NOT_FALL = "loss_did_not_fall"
    NO_PARAMETER_CHANGED = "no_parameter_changed"
    TENSOR_CHANGES_MISSING = "tensor_changes_missing"
    TENSORS_UNCHANGED = "tensors_unchanged"
    COUNT_MISSING = "count_missing"
    COUNT_MISMATCH = "count_mismatch"
    ANSWER_ERROR_MISSING = "answer_error_missing"
    ANSWER_WRONG = "answer_wrong"
    BACKEND_FALLBACK = "backend_fallback"
    COMMAND_BUFFERS_UNUSED = "command_buffers_unused"
    # Cores
    WRONG_CORES = "wrong_cores"
    THREAD_ON_OTHER_CORES = "thread_on_other_cores"
    UTILISATION_CLAMPED = "utilisation_clamped"
    THREADS_MOVED = "threads_moved"
    CORE_OFFLINE = "core_offline"
    # The work itself
    STEP_TIMES_CHANGED = "step_times_changed"
    STEP_TIMES_TWO_MODES = "step_times_two_modes"
    TIME_MISMATCH = "time_mismatch"
    SPEED_IMPOSSIBLE = "speed_impossible"
    WORK_RATE_CHANGED = "work_rate_changed"
    STEP_ENERGY_CHANGED = "step_energy_changed"
    OUTSIDE_EXPECTED = "outside_expected"
    AGREES_WITH_RUNS = "agrees_with_runs"
    PHONE_CLOCK_WRONG = "phone_clock_wrong"
    TIME_STAMPS_COARSE = "time_stamps_coarse"
    CPU_TIME_LOW = "cpu_time_low"
    POWER_CHANGED = "power_changed"
    # Temperature
    START_TEMP_UNKNOWN = "start_temp_unknown"
    START_TOO_WARM = "start_too_warm"
    START_BY_BATTERY = "start_by_battery"
    START_UNCHECKED = "start_unchecked"
    NO_TEMP_READINGS = "no_temp_readings"
    TEMP_NOT_SHOWN = "temp_not_shown"
    SENSOR_FROZEN = "sensor_frozen"
    BODY_SENSOR_FROZEN = "body_sensor_frozen"
    SAMPLING_GAP = "sampling_gap"
    READINGS_LOST = "readings_lost"
    READINGS_ENDED = "readings_ended"
    BODY_WARMED = "body_warmed"
    NOT_STEADY = "not_steady"
    # Length
    TOO_FEW_STEPS = "too_few_steps"
    TOO_SHORT = "too_short"
    CONTINUED = "continued"
    CONTINUED_ON_OTHER_CORES = "continued_on_other_cores"
    # Disturbances
    PHONE_SLEPT = "phone_slept"
    OTHER_CORES_BUSY = "other_cores_busy"
    OWN_CORES_SHARED = "own_cores_shared"
    CHARGED = "charged"
    SCREEN_LIT = "screen_lit"
    SCREEN_WENT_OFF = "screen_went_off"
    SCREEN_OFF = "screen_off"
    SETTING_REFUSED = "setting_refused"
    GPU_SHARED = "gpu_shared"
    BUS_CLOCK_LOWERED = "bus_clock_lowered"
    FOREGROUND_CHANGED = "foreground_changed"
    PHONE_USED = "phone_used"
    SWAPPED = "swapped"
    CANARY_CHANGED = "canary_changed"
    CANARY_DRIFTED = "canary_drifted"
    CANARY_FAILED = "canary_failed"
    NOT_COMMISSIONED = "not_commissioned"
    NEW_REFERENCE = "new_reference"
    # Clocks
    CLOCKS_UNVERIFIED = "clocks_unverified"
    CLOCKS_NOT_PINNED = "clocks_not_pinned"
    CLOCKS_ONLY_SAMPLED = "clocks_only_sampled"
    CLOCKS_NOT_SHOWN = "clocks_not_shown"
    CLOCK_ABOVE_REQUEST = "clock_above_request"
    CLOCK_LOWERED = "clock_lowered"
    CLOCK_NOT_COUNTED = "clock_not_counted"
    CLOCK_CAPPED = "clock_capped"
    COOLING_DEVICE_ACTIVE = "cooling_device_active"
    FIXED_CLOCK_UNSTEADY = "fixed_clock_unsteady"
    GPU_CLOCK_UNVERIFIED = "gpu_clock_unverified"
    GPU_CLOCK_NOT_PINNED = "gpu_clock_not_pinned"
    GPU_CLOCK_LOWERED = "gpu_clock_lowered"
    # Phones whose clocks are not held
    WORK_RATE_LOW = "work_rate_low"
    WORK_RATE_HIGH = "work_rate_high"
    CLOCK_LIMIT_LOWERED = "clock_limit_lowered"
    THERMAL_STATUS_RAISED = "thermal_status_raised"
    HEADROOM_USED_UP = "headroom_used_up"
    SIOP_LEVEL_RAISED = "siop_level_raised"
    OTHER_APPS_BUSY = "other_apps_busy"
    # Energy; never counts against the times
    ENERGY_NOT_READ = "energy_not_read"
    ENERGY_GAUGE_FROZEN = "energy_gauge_frozen"
    ENERGY_CHARGER_NOT_READ = "energy_charger_not_read"
    ENERGY_IMPLAUSIBLE = "energy_implausible"
    ENERGY_GAUGE_GUESSED = "energy_gauge_guessed"
    ENERGY_GAUGE_UNKNOWN = "energy_gauge_unknown"
    ENERGY_GAUGE_SLOW = "energy_gauge_slow"
    ENERGY_PACKAGE_ONLY = "energy_package_only"
    ENERGY_RAILS_ONLY = "energy_rails_only"
    ENERGY_RAILS_ROUNDED = "energy_rails_rounded"
    ENERGY_CELLS_ASSUMED = "energy_cells_assumed"
    USB_PORT_SATURATED = "usb_port_saturated"
    CONNECTED_BY_WIFI = "connected_by_wifi"


# One sentence per code; the fields in braces are the reason's values.
REASON_TEXTS: dict[ReasonCode, str] = {
    ReasonCode.PHONE_RESTARTED: "the phone restarted during the run",
    ReasonCode.LOSS_MISSING: "the runner trained but reported no loss",
    ReasonCode.LOSS_NOT_FINITE: "the loss is not finite: {first} at the start, {last} at the end",
    ReasonCode.LOSS_TOO_FEW_STEPS: "too few steps to tell whether the loss falls",
    ReasonCode.LOSS_DID_NOT_FALL: "the loss did not fall: {first} at the start, {last} at the end",
    ReasonCode.NO_PARAMETER_CHANGED: "the runner trained but changed no parameter",
    ReasonCode.TENSOR_CHANGES_MISSING: "the runner did not report which trained tensors changed",
    ReasonCode.TENSORS_UNCHANGED: "{unchanged} of {trained} trained tensors did not change",
    ReasonCode.COUNT_MISSING: (
        "the runner did not report its {quantity}; the catalogue has {expected}"
    ),
    ReasonCode.COUNT_MISMATCH: (
        "the runner counted {counted} {quantity}; the catalogue has {expected}"
    ),
    ReasonCode.ANSWER_ERROR_MISSING: "the runner did not report the error of its result",
    ReasonCode.ANSWER_WRONG: "the result has an error of {error:.1g} relative to its terms",
    ReasonCode.BACKEND_FALLBACK: "another backend executed {count} of the operations",
    ReasonCode.COMMAND_BUFFERS_UNUSED: (
        "kernels were launched one by one, not as command buffers: {why}"
    ),
    ReasonCode.WRONG_CORES: "the runner ran on cores {actual} instead of {requested}",
    ReasonCode.THREAD_ON_OTHER_CORES: (
        "thread {tid} was allowed to run on cores {actual} instead of {requested}"
    ),
    ReasonCode.UTILISATION_CLAMPED: (
        "the scheduler clamped the utilisation to {clamp} of {limit} (uclamp.max)"
    ),
    ReasonCode.THREADS_MOVED: (
        "{count} of {threads} threads were pinned to their core {at_s:.1f} s after the "
        "start, and threads were allowed to run on cores {actual} (requested: {requested})"
    ),
    ReasonCode.CORE_OFFLINE: "core {cpu} was offline {at_s:.1f} s after the start",
    ReasonCode.STEP_TIMES_CHANGED: (
        "at equal clocks, steps differed by {change:+.1%} in time for {share:.0%} of the run, "
        "from {at_s:.1f} s on"
    ),
    ReasonCode.STEP_TIMES_TWO_MODES: (
        "steps alternated between two times that are {distance:.1%} apart"
    ),
    ReasonCode.TIME_MISMATCH: (
        "the program accounts for {claimed_s:.1f} s; {elapsed_s:.1f} s passed on the phone"
    ),
    ReasonCode.SPEED_IMPOSSIBLE: (
        "the program claims {gflops:.0f} GFLOP/s, and its cores are known for at most "
        "{limit_gflops:.0f}"
    ),
    ReasonCode.WORK_RATE_CHANGED: (
        "steps differed by {change:+.1%} in time from {count} other runs of the same work"
    ),
    ReasonCode.STEP_ENERGY_CHANGED: (
        "steps differed by {change:+.1%} in energy from {count} other runs of the same work"
    ),
    ReasonCode.OUTSIDE_EXPECTED: (
        "{metric} is {value:.3g}; by {count} other phones of this product, {low:.3g} to {high:.3g} "
        "is expected"
    ),
    ReasonCode.AGREES_WITH_RUNS: (
        "a disturbance was seen, but steps took as long as in {count} undisturbed runs of the same "
        "work ({change:+.1%})"
    ),
    ReasonCode.PHONE_CLOCK_WRONG: (
        "the phone's clock counted {phone_s:.1f} s; {host_s:.1f} s passed on the host"
    ),
    ReasonCode.TIME_STAMPS_COARSE: "the clock of the time stamps counts in steps of {tick_ms:g} ms",
    ReasonCode.CPU_TIME_LOW: (
        "the program used the processor for only {share:.0%} of the time: it was stopped or limited"
    ),
    ReasonCode.POWER_CHANGED: (
        "the phone's power differed by {change:+.0%} for {share:.0%} of the run, at equal work"
    ),
    ReasonCode.START_TEMP_UNKNOWN: "the start temperature is unknown",
    ReasonCode.START_TOO_WARM: "the run started at {temp_c:.1f} °C; the limit is {limit_c:.1f} °C",
    ReasonCode.START_BY_BATTERY: (
        "the battery's temperature decided when the run started: the CPU's at rest was not known"
    ),
    ReasonCode.START_UNCHECKED: "the run started without a look at the temperature at rest",
    ReasonCode.NO_TEMP_READINGS: "no temperature was read during the run",
    ReasonCode.TEMP_NOT_SHOWN: "no temperature: this computer shows no CPU thermometer",
    ReasonCode.SENSOR_FROZEN: "the CPU temperature stayed at {temp_c:.1f} °C under load",
    ReasonCode.BODY_SENSOR_FROZEN: (
        "the body's sensor stayed at {temp_c:.1f} °C for {seconds:.0f} s: it measures nothing"
    ),
    ReasonCode.SAMPLING_GAP: "no sensor was read for {gap_s:.1f} s of the run",
    ReasonCode.READINGS_LOST: "{node} could not be read for {share:.0%} of the run",
    ReasonCode.READINGS_ENDED: "no {metric}: its readings cover {share:.0%} of the run",
    ReasonCode.BODY_WARMED: "the phone's body warmed by {rise_c:.1f} °C during a cold run",
    ReasonCode.NOT_STEADY: "temperature and clocks did not become steady within the run",
    ReasonCode.TOO_FEW_STEPS: "{steps} steps were measured; {requested} were requested",
    ReasonCode.TOO_SHORT: "{seconds:.1f} s were measured; {requested_s:.0f} s were requested",
    ReasonCode.CONTINUED: (
        "the run continued from a checkpoint of step {step}; times, heat and energy are of the "
        "{seconds:.0f} s since then"
    ),
    ReasonCode.CONTINUED_ON_OTHER_CORES: "the run used other cores before step {step}",
    ReasonCode.PHONE_SLEPT: "the phone was suspended for {seconds:.1f} s of the run",
    ReasonCode.OTHER_CORES_BUSY: "other work kept the unused cores {busy_pct:.0f} % busy",
    ReasonCode.OWN_CORES_SHARED: "other work took {busy_pct:.0f} % of the run's own cores",
    ReasonCode.CHARGED: "the battery charged for {share:.0%} of the run",
    ReasonCode.SCREEN_LIT: (
        "the screen was lit: its brightness was {brightness:.0%} of the highest, "
        "{at_s:.1f} s after the start"
    ),
    ReasonCode.SCREEN_WENT_OFF: "the screen went off during the run",
    ReasonCode.SCREEN_OFF: "the screen was off ({wakefulness}): phones lower clocks then",
    ReasonCode.SETTING_REFUSED: "the phone refused {count} settings ({settings}): {remedy}",
    ReasonCode.BUS_CLOCK_LOWERED: (
        "the memory clock {name} was {change:+.0%} from its usual one for {share:.0%} of the run"
    ),
    ReasonCode.PHONE_USED: "the phone was woken or touched, by its power manager",
    ReasonCode.FOREGROUND_CHANGED: "an app came to the foreground: process {pid}",
    ReasonCode.GPU_SHARED: "other work kept the GPU {busy_pct:.0f} % busy",
    ReasonCode.SWAPPED: "{swapped_mb:.0f} MB were swapped out during the run",
    ReasonCode.CANARY_CHANGED: (
        "the phone's speed changed: the {canary} canary after the run differs by {change:+.1%} "
        "in time"
    ),
    ReasonCode.CANARY_DRIFTED: (
        "the phone's speed drifted: its {canary} canary differs by {change:+.1%} in time from its "
        "reference ({accumulated:+.1%} accumulated over the runs)"
    ),
    ReasonCode.CANARY_FAILED: (
        "the {canary} canary failed, so a change of the phone's speed cannot be noticed"
    ),
    ReasonCode.NOT_COMMISSIONED: (
        "the phone was never commissioned, so a change since it was set up cannot be noticed"
    ),
    ReasonCode.NEW_REFERENCE: (
        "the canaries had no reference for these cores and clocks; it was learned before this run"
    ),
    ReasonCode.CLOCKS_UNVERIFIED: "the CPU clocks could not be verified over the run",
    ReasonCode.CLOCKS_NOT_PINNED: (
        "the CPU clocks were as requested for only {share:.1%} of the run"
    ),
    ReasonCode.CLOCKS_ONLY_SAMPLED: (
        "the CPU clocks were only sampled: the kernel has no time_in_state"
    ),
    ReasonCode.CLOCKS_NOT_SHOWN: "no clocks: this computer shows none",
    ReasonCode.CLOCK_ABOVE_REQUEST: (
        "the CPU clock was above the requested one for {share:.1%} of the run"
    ),
    ReasonCode.CLOCK_LOWERED: (
        "the CPU clock was below the requested one for {share:.1%} of the run, without a limit"
    ),
    ReasonCode.CLOCK_NOT_COUNTED: (
        "the CPU ran at {counted_khz} kHz by its counted cycles, {change:+.1%} from the "
        "{shown_khz} kHz that its nodes show, for {share:.0%} of the run"
    ),
    ReasonCode.CLOCK_CAPPED: (
        "policy{policy} was capped at {khz} kHz; {requested_khz} kHz were requested"
    ),
    ReasonCode.COOLING_DEVICE_ACTIVE: "cooling device {name} was active",
    ReasonCode.FIXED_CLOCK_UNSTEADY: (
        "the fixed-performance clock was steady for only {share:.1%} of the run"
    ),
    ReasonCode.GPU_CLOCK_UNVERIFIED: "the GPU clock could not be verified over the run",
    ReasonCode.GPU_CLOCK_NOT_PINNED: (
        "the GPU clock was as requested for only {share:.1%} of the run"
    ),
    ReasonCode.GPU_CLOCK_LOWERED: (
        "the GPU was limited to {khz} kHz; this phone usually allows {usual_khz} kHz"
    ),
    ReasonCode.WORK_RATE_LOW: (
        "the phone was slowed down: its {canary} canary took {change:.0%} longer, whatever its "
        "sensors say"
    ),
    ReasonCode.WORK_RATE_HIGH: (
        "the phone was faster than it was commissioned: its {canary} canary differs by "
        "{change:+.1%} in time"
    ),
    ReasonCode.CLOCK_LIMIT_LOWERED: (
        "policy{policy} was limited to {khz} kHz; this phone usually allows {usual_khz} kHz"
    ),
    ReasonCode.THERMAL_STATUS_RAISED: "Android's thermal status was {status} of 6",
    ReasonCode.HEADROOM_USED_UP: "the thermal headroom was used up: {headroom:.2f} of 1",
    ReasonCode.SIOP_LEVEL_RAISED: "Samsung's thermal control was active: sys.siop.level {level}",
    ReasonCode.OTHER_APPS_BUSY: (
        "other apps kept {cores:.1f} cores busy; user id {uid} used the most"
    ),
    ReasonCode.ENERGY_NOT_READ: (
        "no energy: neither a battery gauge nor another power meter was read"
    ),
    ReasonCode.ENERGY_GAUGE_FROZEN: "no energy: the battery gauge did not change",
    ReasonCode.ENERGY_CHARGER_NOT_READ: "no energy: the charger's current could not be read",
    ReasonCode.ENERGY_IMPLAUSIBLE: "no energy: a mean of {power_w:.2f} W is implausible",
    ReasonCode.ENERGY_GAUGE_GUESSED: "coarse energy: sign and unit of the gauge are guessed",
    ReasonCode.ENERGY_GAUGE_UNKNOWN: (
        "no energy: the charger supplies the phone, so the unit of the battery's current is unclear"
    ),
    ReasonCode.ENERGY_GAUGE_SLOW: "coarse energy: the gauge gave {values} values during the run",
    ReasonCode.ENERGY_PACKAGE_ONLY: (
        "the energy is that of the processor package (RAPL), not of the whole computer"
    ),
    ReasonCode.ENERGY_RAILS_ONLY: (
        "the energy is the sum of the phone's metered rails, not that of its battery"
    ),
    ReasonCode.ENERGY_RAILS_ROUNDED: (
        "no energy: the phone rounds the totals of its rails to {rounding_j:.2f} J"
    ),
    ReasonCode.ENERGY_CELLS_ASSUMED: (
        "the energy counts {cells} cells in series, of which the gauge shows one"
    ),
    ReasonCode.USB_PORT_SATURATED: (
        "the USB port delivered its maximum; the battery supplied the rest"
    ),
    ReasonCode.CONNECTED_BY_WIFI: (
        "the phone was connected over Wi-Fi: its radio was on, which adds to its power and heat"
    ),
}

# The limit that the observed figure exceeded or missed: the value `limit` of a reason.
REASON_LIMITS: dict[ReasonCode, str] = {
    ReasonCode.ANSWER_WRONG: "{limit:.1g}",
    ReasonCode.STEP_TIMES_CHANGED: "{limit:.1%}",
    ReasonCode.WORK_RATE_CHANGED: "±{limit:.1%}",
    ReasonCode.STEP_ENERGY_CHANGED: "±{limit:.1%}",
    ReasonCode.AGREES_WITH_RUNS: "±{limit:.1%}",
    ReasonCode.TIME_STAMPS_COARSE: "{limit:.2g} ms",
    ReasonCode.CPU_TIME_LOW: "{limit:.0%}",
    ReasonCode.POWER_CHANGED: "±{limit:.0%}",
    ReasonCode.SAMPLING_GAP: "{limit:.1f} s",
    ReasonCode.CONTINUED: "{limit:.0f} s",
    ReasonCode.READINGS_LOST: "{limit:.0%}",
    ReasonCode.BODY_WARMED: "{limit:.1f} °C",
    ReasonCode.PHONE_SLEPT: "{limit:.1f} s",
    ReasonCode.OTHER_CORES_BUSY: "{limit:.0f} %",
    ReasonCode.OWN_CORES_SHARED: "{limit:.0f} %",
    ReasonCode.SCREEN_LIT: "{limit:.0%}",
    ReasonCode.GPU_SHARED: "{limit:.0f} %",
    ReasonCode.SWAPPED: "{limit:.0f} MB",
    ReasonCode.CANARY_CHANGED: "±{limit:.1%}",
    ReasonCode.CANARY_DRIFTED: "±{limit:.1%}, accumulated ±{total_limit:.1%}",
    ReasonCode.WORK_RATE_LOW: "{limit:+.1%}",
    ReasonCode.WORK_RATE_HIGH: "±{limit:.1%}",
    ReasonCode.CLOCKS_NOT_PINNED: "{limit:.1%}",
    ReasonCode.CLOCK_ABOVE_REQUEST: "{limit:.1%}",
    ReasonCode.CLOCK_LOWERED: "{limit:.1%}",
    ReasonCode.BUS_CLOCK_LOWERED: "-{limit:.1%}",
    ReasonCode.CLOCK_NOT_COUNTED: "±{limit:.1%}",
    ReasonCode.FIXED_CLOCK_UNSTEADY: "{limit:.1%}",
    ReasonCode.GPU_CLOCK_NOT_PINNED: "{limit:.1%}",
}
# Of a disturbance that certainly changed the run by less than one percent.
EFFECT_TEXT = "; it changed the step time of the run by {effect:+.1%} ± {error:.1%}"
# When a reason occurred that is not about the whole run; a value `at_s` names the moment itself.
REASON_MOMENTS: dict[ReasonCode, str] = {
    ReasonCode.WRONG_CORES: "at the start",
    ReasonCode.START_TEMP_UNKNOWN: "at the start",
    ReasonCode.START_TOO_WARM: "at the start",
    ReasonCode.BODY_WARMED: "by the end",
    ReasonCode.TOO_FEW_STEPS: "at the end",
    ReasonCode.TOO_SHORT: "at the end",
    ReasonCode.CONTINUED_ON_OTHER_CORES: "before the checkpoint",
    ReasonCode.NOT_STEADY: "until the end",
    ReasonCode.CANARY_CHANGED: "after the run",
    ReasonCode.CANARY_DRIFTED: "before the run",
    ReasonCode.CANARY_FAILED: "before or after the run",
    ReasonCode.WORK_RATE_LOW: "before the run",
    ReasonCode.WORK_RATE_HIGH: "before the run",
}
WHOLE_RUN = "over the whole run"

# Which metrics a reason counts against, by family. A disturbance changes times, power and heat; it
# changes neither what was learned nor how much memory that took.
FAMILIES: frozenset[Family] = frozenset(get_args(Family))
OF_DISTURBANCES: frozenset[Family] = frozenset({"time", "clock", "energy", "heat"})
OF_LEARNING: frozenset[Family] = frozenset({"learning"})
REASON_FAMILIES: dict[ReasonCode, frozenset[Family]] = {
    # Another program than the requested one, or one whose account is wrong.
    **dict.fromkeys(
        (
            *(ReasonCode.PHONE_RESTARTED, ReasonCode.LOSS_MISSING, ReasonCode.NO_PARAMETER_CHANGED),
            *(ReasonCode.TENSOR_CHANGES_MISSING, ReasonCode.COUNT_MISSING),
            *(ReasonCode.COUNT_MISMATCH, ReasonCode.ANSWER_ERROR_MISSING, ReasonCode.ANSWER_WRONG),
            *(ReasonCode.BACKEND_FALLBACK, ReasonCode.TIME_MISMATCH, ReasonCode.SPEED_IMPOSSIBLE),
        ),
        FAMILIES,
    ),
    ReasonCode.LOSS_NOT_FINITE: OF_LEARNING,
    ReasonCode.LOSS_TOO_FEW_STEPS: OF_LEARNING,
    ReasonCode.LOSS_DID_NOT_FALL: OF_LEARNING,
    ReasonCode.TENSORS_UNCHANGED: OF_LEARNING,
    ReasonCode.TOO_FEW_STEPS: OF_DISTURBANCES | OF_LEARNING,
    ReasonCode.TOO_SHORT: OF_DISTURBANCES | OF_LEARNING,
    ReasonCode.STEP_ENERGY_CHANGED: frozenset({"energy"}),
    ReasonCode.POWER_CHANGED: frozenset({"energy"}),
    ReasonCode.CHARGED: frozenset({"energy", "heat"}),
    ReasonCode.SCREEN_LIT: frozenset({"energy", "heat"}),
    ReasonCode.NO_TEMP_READINGS: frozenset({"heat"}),
}

# Reasons that concern the moment, not the phone: something else used it, or its speed changed.
OF_THE_MOMENT = frozenset(
    {
        *(ReasonCode.STEP_TIMES_CHANGED, ReasonCode.STEP_TIMES_TWO_MODES, ReasonCode.CPU_TIME_LOW),
        *(ReasonCode.OTHER_CORES_BUSY, ReasonCode.OWN_CORES_SHARED, ReasonCode.OTHER_APPS_BUSY),
        *(ReasonCode.SCREEN_LIT, ReasonCode.GPU_SHARED, ReasonCode.BUS_CLOCK_LOWERED),
        *(ReasonCode.FOREGROUND_CHANGED, ReasonCode.PHONE_USED, ReasonCode.SWAPPED),
        ReasonCode.SCREEN_WENT_OFF,
        *(ReasonCode.POWER_CHANGED, ReasonCode.CANARY_CHANGED),
    }
)

ValueName = Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")]
ReasonValue = int | float | Annotated[str, Field(max_length=120)]


class Reason(WireModel):
    """One objection or remark: a code, its consequence, and the observed values."""

    code: ReasonCode
    validity: Validity = Field(description="the verdict that this reason alone would lead to")
    values: dict[ValueName, ReasonValue] = Field(default_factory=dict, max_length=8)

    @classmethod
    def void(cls, code: ReasonCode, **values: ReasonValue) -> Self:
        """Return a reason that makes the run void."""
        return cls(code=code, validity=Validity.VOID, values=values)

    @classmethod
    def suspect(cls, code: ReasonCode, **values: ReasonValue) -> Self:
        """Return a reason that makes the run suspect."""
        return cls(code=code, validity=Validity.SUSPECT, values=values)

    @classmethod
    def remark(cls, code: ReasonCode, **values: ReasonValue) -> Self:
        """Return a remark that does not affect the verdict."""
        return cls(code=code, validity=Validity.VALID, values=values)

    @property
    def text(self) -> str:
        """The reason as a sentence, without a full stop."""
        return reason_text(self.code, [self.values])

    @property
    def when(self) -> str:
        """When it happened, in seconds after the start where the moment is known."""
        at_s = self.values.get("at_s")
        if isinstance(at_s, int | float):
            return f"{at_s:.1f} s after the start"
        return REASON_MOMENTS.get(self.code, WHOLE_RUN)

    @property
    def families(self) -> frozenset[Family]:
        """The families of metrics that this reason counts against; of a remark, none."""
        if self.validity is Validity.VALID:
            return frozenset()
        return REASON_FAMILIES.get(self.code, OF_DISTURBANCES)

    def __str__(self) -> str:
        return self.text


def reason_text(code: ReasonCode, occurrences: Sequence[Mapping[str, ReasonValue]]) -> str:
    """Render reasons of one code as one sentence with the range of each value, and its limit."""
    try:
        text = _render(REASON_TEXTS[code], occurrences)
        if code in REASON_LIMITS and all("limit" in values for values in occurrences):
            text += f"; the limit is {_render(REASON_LIMITS[code], occurrences)}"
        if all("effect" in values for values in occurrences):
            text += _render(EFFECT_TEXT, occurrences)
        return text
    except (KeyError, ValueError, TypeError):  # values from a host that do not fit the sentence
        return str(code)


def _render(template: str, occurrences: Sequence[Mapping[str, ReasonValue]]) -> str:
    return "".join(
        literal + ("" if name is None else _range(name, spec or "", occurrences))
        for literal, name, spec, _ in Formatter().parse(template)
    )


def _range(name: str, spec: str, occurrences: Sequence[Mapping[str, ReasonValue]]) -> str:
    values = [values[name] for values in occurrences]
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) < len(values):
        return " or ".join(dict.fromkeys(map(str, values)))
    low, high = format(min(numbers), spec), format(max(numbers), spec)
    return low if low == high else f"{low} to {high}"


class Verdict(WireModel):
    """Whether a run counts: the requested condition compared with what was observed.

    `validity` is the worst of all families of metrics; each family has its own.
    """

    validity: Validity
    reasons: tuple[Reason, ...] = Field(default=(), max_length=100)
    deterministic: bool = Field(
        default=False,
        description="void because of the workload itself; a repetition would end the same",
    )

    @property
    def text(self) -> str:
        """All reasons as one line."""
        return "; ".join(reason.text for reason in self.reasons)

    @property
    def doubted(self) -> frozenset[Family]:
        """The families whose metrics do not count; all of them without a reason."""
        if self.validity is Validity.VALID:
            return frozenset()
        return frozenset().union(*(reason.families for reason in self.reasons)) or FAMILIES

    def validity_of(self, family: Family) -> Validity:
        """Whether the metrics of a family count: a disturbed run may still show what it learned."""
        if family not in self.doubted:
            return Validity.VALID
        own = {reason.validity for reason in self.reasons if family in reason.families}
        return Validity.VOID if Validity.VOID in own else Validity.SUSPECT if own else self.validity

    @property
    def objections(self) -> tuple[Reason, ...]:
        """The reasons that are more than a remark."""
        return tuple(item for item in self.reasons if item.validity is not Validity.VALID)

    @property
    def is_of_the_moment(self) -> bool:
        """Whether only something passing counts against the run: another attempt may be better."""
        codes = {reason.code for reason in self.objections}
        return bool(codes) and codes <= OF_THE_MOMENT
