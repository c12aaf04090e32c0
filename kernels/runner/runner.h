/* runner.h - what runs on the phone, and the contract it keeps.
 *
 * The runner is one small executable. It is pushed to the phone by digest, started by the agent
 * over adb, and trusted by reading. This comment is the authority for its arguments, its files,
 * its output lines and its exit codes; the agent's parser and the virtual phone's runner obey it
 * as well, and one test holds all of them to it.
 *
 *   runner info
 *   runner run PLAN DIR  [--warmup N] [--steps N] [--seconds S] [--max-seconds S]
 *                        [--window-ms N] [--period-ms N] [--trace-steps N] [--data FILE] [OPENCL]
 *   runner sample DIR    [--period-ms N] [--seconds S]
 *   runner guard DIR     [--silence-s N]
 *   runner dump PLAN DIR [--steps N] [--data FILE] [OPENCL]
 *   runner tune DIR      [--launches N] [--rounds N] [OPENCL]
 * where OPENCL is        [--kernels DIR] [--tuned FILE] [--device N] [--fallback cpu]
 *
 * RULES OF SPEECH
 *   Everything said is one JSON object per line, UTF-8, at most 64 KiB a line, with a member
 *   "line" that names its kind. Readers ignore members they do not know. Units stand in names.
 *   Every time is CLOCK_BOOTTIME in nanoseconds (the clock of /proc/uptime), so that readings,
 *   windows and the agent's own look at the phone share one axis. Nothing is written between
 *   two lines; a file whose last line is neither "done" nor "fault" belongs to a dead runner.
 *
 * info
 *   Prints one line to stdout and exits 0:
 *     {"line":"info","contract":1,"runner":"farmhand 0.1.0","abi":"arm64-v8a",
 *      "backends":["cpu"],"features":["asimd","fp16"],"opencl":[],
 *      "provenance":{"time":P,"clock":P,"heat":P,"energy":P}}
 *   backends are what a plan may ask for here: "opencl" is among them where a device was found.
 *   features are those of the CPU that could matter for speed. opencl lists the devices that the
 *   vendor's library shows, numbered from 0 for --device: {"platform":"...","device":"...",
 *   "version":"...","driver":"...","type":"gpu","units":N,"global_bytes":N,"max_alloc_bytes":N,
 *   "local_bytes":N,"max_group":N,"images":true}; a library that loads and shows none is [].
 *   provenance says, per family of metrics, where this phone's numbers come from. P is null
 *   (this phone offers no such figure) or one of
 *     {"source":"phone"}                                     measured on a phone
 *     {"source":"host"}                                      real execution on a computer
 *     {"source":"simulated","model":"fitted","error_rel":E}  a model, with its error
 *     {"source":"simulated","model":"extrapolated"}          a model, error unknown
 *   A build for phones says "phone" where it finds Android, and "host" on any other system, on an
 *   emulator and where FARMHAND_NATIVE_PHONE is set; a build for computers says "host" always.
 *   Whoever simulates says so here, and nobody else has to know.
 *
 * run PLAN DIR
 *   Executes the PLAN's steps and writes DIR/out.jsonl. DIR exists and is the agent's.
 *     --warmup N       steps left out of every window (default 3)
 *     --steps N        measure at least N steps (default 20) ...
 *     --seconds S      ... and for at least S seconds (default 0) ...
 *     --max-seconds S  ... but stop measuring after S seconds (default 600)
 *     --window-ms N    one window closes at the first step boundary after N ms (default 50);
 *                      widened so that --max-seconds fits in RUNNER_WINDOWS_MAX windows
 *     --period-ms N    how often DIR/nodes is sampled (default 200; 10 at least)
 *     --trace-steps N  time-stamp every operation of N steps, spread over the run (default 0)
 *     --data FILE      the data file of a plan that reads one (kernels/engine/data.h)
 *   Affinity is not an argument: the agent applies the mask before exec (taskset), every thread
 *   inherits it, and the runner says which mask it finds, so that what was asked is not what is
 *   reported. Lines, in this order:
 *     {"line":"hello","contract":1,"pid":N,"case":"DIGEST","mask":"f0","threads":4,"t_ns":T,
 *      "provenance":{...}}
 *         provenance as in info, for this run; absent, what info said holds. A model may be
 *         fitted for one workload and extrapolated for the next, and then info promises less.
 *     {"line":"memory","parameter":B,"gradient":B,"state":B,"activation":B,"input":B,
 *      "workspace":B,"dataset":B}
 *         bytes taken, by kind, before the first step; nothing is taken after it.
 *     {"line":"device","platform":"...","device":"...","version":"...","driver":"...",
 *      "build_ns":B,"copy_ns":C,"programs":N,"tuned":N}                      of an OpenCL plan only
 *         who computes; how long it took to build the kernels, and to copy the first values over;
 *         how many programs were built, and how many products found their numbers in --tuned.
 *     {"line":"window","first":I,"n":N,"t_ns":T,"ns":D,"ns_min":A,"ns_max":B,
 *      "phases_ns":[LOAD,FORWARD,BACKWARD,UPDATE],"device_ns":[COPY,QUEUE,COMPUTE]}     repeated
 *         N consecutive steps, the first being number I (warm-up not counted), started at T,
 *         together D ns long, the shortest A and the longest B. A step of --window-ms or more is
 *         a window of its own. No step is counted twice and none is left out. phases_ns adds up
 *         to D, less the few ns between two phases; null where phases are not told apart.
 *         device_ns stands in the windows of an OpenCL plan and tells D once more, by the device's
 *         own clock: COPY moved data (start to end), COMPUTE ran kernels (start to end), QUEUE was
 *         a command that stood in the queue with nothing running before it. No two of them overlap;
 *         what is left of D is the host's. Null where the device's stamps make no sense.
 *     {"line":"trace","step":I,"t_ns":T,"first":F,"ends_ns":[E, ...]}            between windows
 *         Operations F, F+1, ... of the header ended so many ns after T, the moment the first of
 *         them began; -1 for one that took no part. A step of many operations takes several
 *         lines. Traced steps are steps like others; what the stamps cost is in their time.
 *     {"line":"evaluation","step":I,"t_ns":T,"ns":D,"accuracy":A}                 between windows
 *         for plans that evaluate as they go; not part of any window.
 *     {"line":"sampler","readings":N,"cpu_ns":C,"late_p50_ns":A,"late_p99_ns":B,"late_max_ns":M,
 *      "core":K}
 *         what sampling cost, if there was any: processor time, and how late readings were; the
 *         core that it was bound to, or -1.
 *     {"line":"done","steps":N,"ns":D,"t_ns":T,"peak_rss_kb":R,"loss_first":L,"loss_last":M,
 *      "parameters_changed":true,"parameters":P,"macs":Q,"learned":U,"moved":V,"fallbacks":0,
 *      "answer_error":null}
 *         loss_first and loss_last are means over the first and the last round through the same
 *         few batches, warm-up included, so that they compare like with like (over the halves of
 *         a run that was shorter than one round); null for a workload without a loss. parameters
 *         and macs (multiply-adds of the forward operations of one step) are counted from what was
 *         executed. learned tensors have an update, moved ones differ from their first values.
 *         fallbacks counts operations that another backend did. answer_error is the largest error
 *         of a product against a reference in double precision, relative to the size of the terms,
 *         where the workload has such an answer.
 *         A training workload that changed no parameter is a fault (wrong_answer), never "done": a
 *         framework that silently skips the optimizer is the oldest way to win a training
 *         benchmark. So is a loss that is not finite.
 *   or, at any point and as the last line,
 *     {"line":"fault","code":"CODE","text":"one sentence: what, where, what to do"}
 *   If DIR/nodes exists, the same process samples those nodes beside the work, as `sample` does,
 *   on a core outside its mask where there is one.
 *   SIGTERM ends the run at the next step boundary with the fault "stopped".
 *
 * sample DIR
 *   Reads DIR/nodes (a line each: PATH, or PATH<TAB>cores, or PATH<TAB>whole), keeps them open
 *   and appends to DIR/readings.jsonl:
 *     {"line":"nodes","paths":["/sys/class/thermal/thermal_zone3/temp", ...]}
 *     {"line":"reading","t_ns":T,"v":[V, ...]}        one per period; in the order of paths
 *   V is the node's first line as a JSON integer where it is one, as text (256 bytes at most)
 *   where it is not, and null where it cannot be read. Of a node marked "cores", which has the
 *   form of /proc/stat, V is the text "CPU:BUSY/TOTAL CPU:BUSY/TOTAL ..." in ticks, for every core
 *   that is online. Of one marked "whole", V is all its lines as one text, ";" between them, 1024
 *   bytes at most. Ends after --seconds (default 60), with the line "sampler" on stdout, as in run.
 *
 * guard DIR
 *   The dead-man. Started detached, before anything on the phone is changed. DIR/restore lists,
 *   in the order the agent is about to write them, the nodes it changes and their old values:
 *     PATH<TAB>VALUE
 *   The agent writes the phone's uptime to DIR/alive while it lives. When DIR/alive has not
 *   changed for --silence-s (default 60) of the phone's time, guard kills the runner named in
 *   DIR/out.jsonl (or the foreign program out of DIR/work that is named there), writes the old
 *   values back in reverse order, renames DIR/restore to DIR/restored and exits with
 *   RUNNER_GUARD_RESTORED. It does the same at once when a node of DIR/ceiling (PATH<TAB>LIMIT a
 *   line, in the node's own unit) stands above its limit at two looks in a row, a second apart.
 *   When DIR/restore disappears, the agent has put everything back itself, and guard exits 0.
 *
 * dump PLAN DIR
 *   Executes --steps steps (default 1), untimed, and writes DIR/dump.bin, so that a reference on a
 *   computer can be held against this very phone: for every moment (before the first step, and
 *   after each) the 8 bytes of its number, then all tensors of the plan one after another, as
 *   they lie, without padding. Nothing is sampled; the last line is "done" or "fault" on stdout.
 *
 * OPENCL
 *   A plan whose backend is "opencl" computes on a device of the vendor's library, which is opened
 *   when it is asked for: FARMHAND_OPENCL in the environment names it, otherwise the usual names
 *   and folders are tried. Tensors live on the device; a step copies its batch there, its loss back,
 *   and nothing else. A step ends when the device is idle and the loss is in hand.
 *     --kernels DIR    where kernels/opencl/ was pushed to (default: the folder of the PLAN)
 *     --tuned FILE     numbers that were found for this device (default: none)
 *     --device N       which device, as info counts them (default 0)
 *     --fallback cpu   let the CPU do the operations that the device lacks; each is counted, and
 *                      its copies are COPY. Without it such a plan is the fault "unsupported".
 *   A tuning file is text, a record a line, and holds for one device only:
 *     farmhand-tuned 2
 *     device NAME<TAB>VERSION<TAB>DRIVER            as info has them; of another: "unsupported"
 *     kernels DIGEST                                of sgemm.cl; not read here
 *     sgemm M N K TA TB WAY [NAME=VALUE ...]        the fastest for op(A) op(B) of that size
 *   WAY is vector, tiled_vector, direct, dots, packed, image or half; the names are what sgemm.cl
 *   is built with (MR, NR, TILE ...), GX and GY the shape of a work group. A product takes the record
 *   of the same transposes that is nearest in size; one whose file has none takes a rule of thumb.
 *
 * tune DIR
 *   Times ways to multiply on the device. DIR/candidates has a line each: M N K TA TB WAY
 *   [NAME=VALUE ...]. All of one shape take turns, --rounds times (default 3), each turn as many
 *   launches as fill 20 ms, --launches at least (default 5), with one wait at the end. To stdout:
 *     {"line":"device", ...}                                              as in run
 *     {"line":"candidate","number":I,"build_ns":B,"launches":N,"wall_ns":W,"queue_ns":Q,
 *      "compute_ns":C,"error":E}                                          in the order of the file
 *         I counts from 0. W is the least time of a product over all turns, by this runner's clock;
 *         QUEUE and COMPUTE as in a window, of a product launched by itself. E as answer_error.
 *     {"line":"candidate","number":I,"fault":"one sentence"}              one that cannot be built,
 *         or launched: the device has no room for its tile, say. The others go on.
 *     {"line":"done","candidates":N,"t_ns":T}
 *
 * THE PLAN
 *   A plan is lowered by Python from a workload with every parameter bound:
 *     farmhand-plan 1 HEADER_BYTES\n
 *     {header}\n          HEADER_BYTES bytes of JSON, newline included
 *     body                what the engine executes; empty where the header says so
 *   The header is enough to know the work without doing it:
 *     {"case":"DIGEST","workload":"mlp-4","backend":"cpu","threads":4,"training":true,
 *      "samples_per_step":32,"parameter_bytes":N,"activation_bytes":N,"body_bytes":0,
 *      "memory":{"parameter":B,"gradient":B,"state":B,"activation":B,"input":B,"dataset":B},
 *      "ops":[{"name":"fc1.forward","kind":"matmul","flops":N,"read_bytes":N,"write_bytes":N}]}
 *   ops are the operations of ONE step in the order of execution. A virtual phone takes its
 *   times from them. memory is what the body's arenas and streams take. The grammar of the body is
 *   the opening comment of kernels/engine/engine.h; the engine reads the body alone, a virtual
 *   phone the header alone.
 *
 * WHAT IT REFUSES
 *   No network. No writes outside DIR (guard: the nodes in DIR/restore excepted). No allocation
 *   inside the timed loop. No silent fallback: an operation that the backend lacks is the fault
 *   "unsupported". No clock other than CLOCK_BOOTTIME. No opinion: verdicts are the agent's.
 */
#ifndef FARMHAND_RUNNER_H
#define FARMHAND_RUNNER_H

#define RUNNER_CONTRACT 1
#define RUNNER_VERSION "farmhand 0.1.0"
#define RUNNER_WINDOWS_MAX 4096
#define RUNNER_LINE_BYTES_MAX 65536

/* Exit status, and the CODE of the fault line that goes with it. */
enum runner_exit {
    RUNNER_DONE = 0,
    RUNNER_USAGE = 2,           /* "usage"          arguments that this contract does not have */
    RUNNER_BAD_PLAN = 3,        /* "bad_plan"       unreadable, truncated, or of another version */
    RUNNER_UNSUPPORTED = 4,     /* "unsupported"    operation or backend that this build lacks */
    RUNNER_OUT_OF_MEMORY = 5,   /* "out_of_memory"  before the timed loop, where all memory is taken */
    RUNNER_WRONG_ANSWER = 6,    /* "wrong_answer"   not finite, or parameters did not change */
    RUNNER_STOPPED = 7,         /* "stopped"        SIGTERM */
    RUNNER_IO = 8,              /* "io"             DIR cannot be written: full, gone, read-only */
    RUNNER_NO_RUNNER = 9,       /* "no_runner"      the placeholder of an ABI that has no build yet */
    RUNNER_GUARD_RESTORED = 10, /* guard put the phone back because the agent was silent */
    RUNNER_DEVICE = 11          /* "device"         a kernel does not build, or the device fails */
};

#endif
