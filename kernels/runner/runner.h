/* runner.h - the runner: the program that runs on the phone, and its contract.
 *
 * The runner is one small executable. The agent pushes it to the phone, named by its digest, and
 * starts it over adb. This comment defines its arguments, files, output records and exit statuses.
 * The agent's parser and the runner of the virtual phone follow the same text, and one test
 * (tests/kernels/test_contract.py) runs both runners against it.
 *
 *   runner info
 *   runner run PLAN DIR   [--warmup N] [--steps N] [--seconds S] [--max-seconds S]
 *                         [--window-ms N] [--period-ms N] [--trace-steps N] [--data FILE]
 *                         [--input NAME] [--checkpoint FILE] [--checkpoint-s S] [OPENCL]
 *   runner sample DIR     [--period-ms N] [--seconds S]
 *   runner watchdog DIR   [--timeout-s N]
 *   runner wait PID       [--seconds S]
 *   runner dump PLAN DIR  [--steps N] [--data FILE] [OPENCL]
 *   runner memory PLAN
 *   runner tune DIR       [--launches N] [--rounds N] [OPENCL]
 * OPENCL stands for       [--kernels DIR] [--tuned FILE] [--device N] [--fallback cpu]
 *                         [--kernel NAME] [--feed NAME] [--submit NAME]
 *
 * Any other argument is the fault "usage", and nothing is read or written before that.
 *
 * RECORDS
 *   All output consists of records: one JSON object per line, UTF-8, at most 64 KiB per line. The
 *   member "line" names the kind of a record. Readers ignore members that they do not know. Names
 *   of members end with their unit. Every time is CLOCK_BOOTTIME in nanoseconds (the clock of
 *   /proc/uptime), so that windows, readings and the agent's view of the phone have one time axis.
 *   A line is written whole or not at all. A file whose last record is neither "done" nor "fault"
 *   belongs to a runner that died.
 *
 * EXIT STATUS  code of the fault record
 *   0          (none)           done
 *   2          usage            arguments that this contract does not define
 *   3          bad_plan         a plan that is unreadable, truncated, or of another version
 *   4          unsupported      an operation or a backend that this build or device lacks
 *   5          out_of_memory    found before the first step, when all memory is allocated
 *   6          wrong_answer     a result that is not finite, or parameters that did not change
 *   7          stopped          SIGTERM
 *   8          io               DIR cannot be read or written: full, missing, read-only
 *   9          no_runner        the placeholder script of an ABI without a build
 *   10         (none)           `watchdog` restored the phone
 *   11         device           a kernel does not build, or the OpenCL device failed
 *   12         bad_checkpoint   a checkpoint that is damaged, or of another run
 *   A fault record is {"line":"fault","code":"CODE","text":"what is wrong; what to do"}. It is
 *   written to stdout and, by `run`, to DIR/out.jsonl. Programs decide by the code, never by the
 *   text.
 *
 * info
 *   Prints one record to stdout and exits with 0:
 *     {"line":"info","contract":1,"runner":"farmhand 0.1.0","abi":"arm64-v8a",
 *      "backends":["cpu"],"features":["asimd","fp16"],"opencl":[],
 *      "kernels":["naive", ...],"feeds":["copied", ...],"inputs":["memory","storage"],
 *      "submissions":["step", ...],
 *      "provenance":{"time":P,"clock":P,"heat":P,"energy":P}}
 *   backends    what a plan may use here; "opencl" is among them where a device was found
 *   features    processor features that may matter for speed
 *   opencl      the devices of the vendor's library, numbered from 0 for --device:
 *               {"platform":"...","device":"...","version":"...","driver":"...","type":"gpu",
 *               "units":N,"global_bytes":N,"max_alloc_bytes":N,"local_bytes":N,"max_group":N,
 *               "images":true}.
 *               A library that crashes, hangs or lists no devices gives [].
 *   kernels, feeds, inputs, submissions
 *               the names that --kernel, --feed, --input and --submit take
 *   provenance  where the metrics of each family come from on this phone. P is null (there are no
 *               such metrics) or one of
 *     {"source":"phone"}                                     measured on a phone
 *     {"source":"host"}                                      real execution on a computer
 *     {"source":"simulated","model":"fitted","error_rel":E}  a model with a known error
 *     {"source":"simulated","model":"extrapolated"}          a model with an unknown error
 *     {"source":"simulated","model":"uncalibrated"}          a model without measured tables
 *   A build for phones reports "phone" where it finds Android, and "host" on any other system, on
 *   an emulator, and where the environment variable FARM_NATIVE_PHONE is set. A build for
 *   computers always reports "host". A simulated phone reports "simulated", and no other part of
 *   the farm needs to know that it is simulated.
 *
 * run PLAN DIR
 *   Executes the steps of PLAN and writes DIR/out.jsonl. The agent created DIR.
 *     --warmup N       steps before the first window (default 3)
 *     --steps N        measure at least N steps (default 20) ...
 *     --seconds S      ... and for at least S seconds (default 0) ...
 *     --max-seconds S  ... but stop after S seconds of measuring (default 600), those before a
 *                      resume included
 *     --window-ms N    close a window at the first end of a step after N ms (default 50); widened
 *                      so that --max-seconds fits into RUNNER_WINDOWS_MAX windows
 *     --period-ms N    time between two readings of DIR/nodes (default 200, at least 5)
 *     --trace-steps N  record when every operation ended, in N steps that are spread over the run
 *                      (default 0)
 *     --data FILE      the data file of a plan that reads one (kernels/engine/dataset.h)
 *     --input NAME     memory (default): the data set is in memory before the first step.
 *                      storage: every batch is read from a file when its step needs it, past the
 *                      page cache where the file system allows it. A generated data set is written
 *                      to DIR/dataset before the first step, and removed once it is open. The time
 *                      of reading is part of LOAD. Not with --feed preloaded: "usage".
 *     --checkpoint FILE   continue from this checkpoint if it exists, and keep it up to date
 *     --checkpoint-s S    write it when a window ends and the last one is older than S seconds
 *                      (default 30). A run that was killed and continues computes the same bits as
 *                      one that was not. A checkpoint of another plan, build of the runner, OpenCL
 *                      device, kernel or --warmup, or with more steps than this run has, is the
 *                      fault "bad_checkpoint". Writing a checkpoint belongs to no window, and none
 *                      is written after the last step. Its folder is for one run at a time: "io".
 *   Affinity is not an argument: the agent sets the mask before exec (taskset), and the runner
 *   reports the mask that it finds, so that the report shows what really was the case. Then it pins
 *   each of its threads to one core of that mask: the first thread to the fastest core, the next
 *   one to the next fastest, and so on, counted around if there are more threads than cores.
 *   Threads that stay on their cores find their data in the cache, and repeat: a kernel that moves
 *   them at will measures something else in every run. Threads of an OpenCL driver inherit the
 *   whole mask. If DIR/nodes exists, the same process samples those nodes during the run, as
 *   `sample` does, on a core outside its mask where there is one. SIGTERM ends the run at the next
 *   end of a step with the fault "stopped". Records of out.jsonl, in this order:
 *     {"line":"hello","contract":1,"pid":N,"case":"DIGEST","mask":"f0","threads":4,"t_ns":T,
 *      "provenance":{...}}
 *         mask is hexadecimal. provenance is that of this run, as in info; where it is absent, that
 *         of info holds. A model may be fitted for one workload and extrapolated for another, and
 *         info then states the weaker of both.
 *     {"line":"memory","parameter":B,"gradient":B,"state":B,"activation":B,"input":B,
 *      "workspace":B,"dataset":B}
 *         bytes allocated before the first step, by kind; nothing is allocated after it. The
 *         workspace is what the engine adds to the plan: the memory that its operations share, and
 *         the list of operations.
 *     {"line":"input","source":"storage","direct":true,"batch_bytes":B}     of --input storage only
 *         whether reads bypass the page cache, and the bytes read per step.
 *     {"line":"device","platform":"...","device":"...","version":"...","driver":"...",
 *      "build_ns":B,"copy_ns":C,"programs":N,"tuned":N,"recorded":N}       of an OpenCL plan only
 *         the device; the time to build the kernels and to copy the initial values; the number of
 *         programs, of matrix products that found their parameters in --tuned, and of parts of a
 *         step that are recorded in command buffers.
 *     {"line":"program","files":"sgemm_common.cl sgemm_1_naive.cl","options":"-w -DTA=0 -DTB=0",
 *      "digest":"52d9ec0431a6b7f8"}                                              once per program
 *         the files of --kernels that were built, after common.cl, with these options. The digest
 *         is a hash of their text. A simulated phone lists the programs of its matrix products.
 *     {"line":"window","first":I,"n":N,"t_ns":T,"ns":D,"ns_min":A,"ns_max":B,
 *      "phases_ns":[LOAD,FORWARD,BACKWARD,UPDATE],"device_ns":[COPY,QUEUE,COMPUTE],
 *      "loss":L}                                                                       repeated
 *         N consecutive steps, the first of which is number I (warm-up not counted). They started
 *         at T and took D ns together, the shortest A and the longest B. A step of --window-ms or
 *         more is a window by itself. Every measured step is in exactly one window. phases_ns sums
 *         to D, except for the few ns between two phases; null where phases cannot be
 *         distinguished. device_ns is in the windows of an OpenCL plan: D by the clock of the
 *         device. COPY moved data and COMPUTE ran kernels (both from start to end), QUEUE is the
 *         time in which a command waited in the queue while nothing ran. They do not overlap; the
 *         rest of D is the host's. Of recorded kernels, COMPUTE includes the time between them.
 *         Null where the timestamps of the device make no sense. L is the mean loss of the N steps;
 *         absent for a workload without a loss, and on a simulated phone.
 *     {"line":"trace","step":I,"t_ns":T,"first":F,"ends_ns":[E, ...]}            between windows
 *         operation F + k of the header ended E[k] ns after T, the time at which the first of them
 *         began; -1: it did not run. A step with many operations takes several records. A traced
 *         step is measured like any other; the cost of its timestamps is part of its time.
 *     {"line":"evaluation","step":I,"t_ns":T,"ns":D,"accuracy":A}                between windows
 *         of a plan that evaluates during training; its time belongs to no window.
 *     {"line":"resume","step":I,"t_ns":T,"same_cores":true,"lost_ns":L}     of a run that goes on
 *         the first window begins with step I. same_cores: false if the mask is another one. L is
 *         the time since the checkpoint was written; after a reboot, by the phone's wall clock, or
 *         null if that clock was set back.
 *     {"line":"checkpoint","step":I,"t_ns":T,"ns":D}                             between windows
 *         a run that is killed now continues with step I; writing took D ns.
 *     {"line":"sampler","readings":N,"cpu_ns":C,"late_p50_ns":A,"late_p99_ns":B,"late_max_ns":M,
 *      "core":K}
 *         if nodes were sampled: what that cost in processor time, how late readings were, and the
 *         core that the sampler was pinned to, or -1.
 *     {"line":"done","steps":N,"ns":D,"t_ns":T,"peak_rss_kb":R,"loss_first":L,"loss_last":M,
 *      "parameters_changed":true,"parameters":P,"macs":Q,"learned":U,"moved":V,"fallbacks":0,
 *      "answer_error":null,"first_step_ns":F,"waited_ns":W}
 *         loss_first and loss_last are means over the first and the last pass through the data set,
 *         warm-up included, so that they compare the same batches; of a run shorter than one pass,
 *         over its halves; null for a workload without a loss. parameters and macs (multiply-adds
 *         of the forward operations of one step) are counted from what was executed. learned is the
 *         number of tensors that an update writes, moved how many of them changed. fallbacks counts
 *         the operations that another backend executed. answer_error is the largest error of a
 *         matrix product against double precision, relative to the sum of the absolute terms; null
 *         for a workload without such a product. first_step_ns is the time from "hello" to the end
 *         of the first step, warm-up included. waited_ns is how long the first thread slept, since
 *         the first window, until the others had finished their part of an operation: at all other
 *         times it has work. With --checkpoint, "digest" is a hash of all parameters and the state
 *         of the optimizer; steps and ns include those before a resume, waited_ns does not.
 *         "note" says why the command buffers of the device are not used, if it has any.
 *   or, at any point, a fault record as the last one. A training workload that changed no parameter
 *   is the fault "wrong_answer", never "done": a framework that silently skips the optimizer would
 *   win every benchmark. The same holds for a loss that is not finite.
 *
 * sample DIR
 *   Reads DIR/nodes (one per line: PATH, or PATH<TAB>FORM), keeps the nodes open, and appends to
 *   DIR/readings.jsonl:
 *     {"line":"nodes","paths":["/sys/class/thermal/thermal_zone3/temp", ...]}
 *     {"line":"reading","t_ns":T,"v":[V, ...]}          one per period, in the order of paths
 *   V is the first line of the node: a JSON integer where it is one, else text of at most 256
 *   bytes; null where the node cannot be read. FORM asks for something else than the first line:
 *     cores   of /proc/stat: the text "CPU:BUSY/TOTAL CPU:BUSY/TOTAL ..." in ticks, for every core
 *             that is online
 *     whole   all lines as one text, joined by ";", of at most 1024 bytes
 *     ticks   of /proc/PID/stat: user and system time of the process, as an integer
 *     memory  of /proc/meminfo: the text "TOTAL AVAILABLE SWAP_TOTAL SWAP_FREE" in kB
 *     masks   of a folder of tasks, such as /proc/self/task: the text "THREADS ALL ANY UNPINNED".
 *             THREADS is the number of threads besides the sampler. ALL and ANY are the cores that
 *             all of them and that any of them may use, as hexadecimal masks. UNPINNED is how many
 *             of them may run elsewhere than on the one core that the runner gave them. Threads
 *             that the runner did not start, such as those of an OpenCL driver, are among them.
 *     cycles  of /proc/self: the text "CYCLES/NS", the cycles that the processor counted for
 *             this process, and the time in which it did; null where the kernel does not allow it,
 *             and for the command `sample`, which does no work
 *   masks and cycles are read at most five times per second. Ends after --seconds (default 60) and
 *   prints the record "sampler", as in run.
 *
 * watchdog DIR
 *   The dead-man's switch. The agent starts it detached, before it changes anything on the phone.
 *   DIR/restore lists the nodes that the agent will change and their old values, in the order in
 *   which the agent writes them:
 *     PATH<TAB>VALUE
 *   The agent writes the phone's uptime to DIR/heartbeat while it runs. When DIR/heartbeat has not
 *   changed for --timeout-s seconds (default 60) of the phone's time, the watchdog kills the
 *   process whose pid is in DIR/out.jsonl (a runner, or an external program from DIR/work), writes
 *   the old values back in reverse order, renames DIR/restore to DIR/restored, and exits with 10.
 *   It does the same at once when a node of DIR/temp_limits (one PATH<TAB>LIMIT per line, in the
 *   unit of the node) is above its limit at two checks in a row, a second apart. When DIR/restore
 *   disappears, the agent has restored everything itself, and the watchdog exits with 0.
 *
 * wait PID
 *   Ends when the process PID has ended or when S seconds (--seconds, default 15) of the phone's
 *   time have passed, whichever is first. PID is an integer from 1 to 999999999, and may be any
 *   process of the phone, also another user's. A process that does not exist has ended, and so has
 *   one that its parent has not reaped yet. In every case `wait` prints nothing and exits with 0,
 *   so the caller looks what is the case. SIGTERM ends it like any program, without a fault record.
 *   It sleeps without waking the phone. Where the kernel has no pidfd_open (before Linux 5.3) or a
 *   filter refuses it, `wait` looks every 50 ms, and ends that much later.
 *
 * dump PLAN DIR
 *   Executes --steps steps (default 1), untimed, and writes DIR/dump.bin, so that a reference on a
 *   computer can be compared with this phone. For each point in time (before the first step, and
 *   after every step) the file has the number of completed steps (8 bytes), then all tensors of the
 *   plan, as they are in memory, without padding. Nothing is sampled; the last record, "done" or a
 *   fault, goes to stdout.
 *
 * memory PLAN
 *   Prints the record "memory", as in run, and executes nothing. The workspace does not depend on
 *   the processor, so that a computer knows before a run what it will take on a phone.
 *
 * OPENCL
 *   A plan with the backend "opencl" runs on a device of the vendor's library. The library is
 *   loaded when it is needed: the one named by the environment variable FARM_OPENCL, else from the
 *   usual names and folders. Tensors stay on the device, unless --feed is copied; a step copies
 *   its batch there and its loss back, and nothing else. A step ends when the device is idle and
 *   the loss is on the host.
 *     --kernels DIR    the folder to which kernels/opencl/ was pushed (default: that of the PLAN)
 *     --tuned FILE     parameters of matrix products for this device (default: none)
 *     --device N       the number of the device, as in info (default 0)
 *     --kernel NAME    the matrix products of the plan, those of LSTM and attention included:
 *                      naive, vector, tiled, tiled_vector, packed, or tuned (default): the
 *                      parameters of --tuned, else a rule of thumb. Convolutions have kernels of
 *                      their own.
 *     --feed NAME      copied: the operands of every operation are copied to the device before it
 *                      and its results to the host after it, as some engines do. mapped: a step
 *                      writes its batch into mapped memory. resident (default): a step copies its
 *                      batch to the device. preloaded: the whole data set is on the device before
 *                      the first step, and a step only selects its batch there.
 *     --submit NAME    step (default): the kernels of a phase are recorded in a command buffer,
 *                      where the device has cl_khr_command_buffer, and submitted as one command.
 *                      Kernels with an argument that changes in every step (the batch of
 *                      preloaded, dropout, Adam) are launched singly between them. Command buffers
 *                      that compute a wrong result, take longer than launches, or have timestamps
 *                      that do not cover their kernels are not used. recorded: they are used even
 *                      if slow or with such timestamps, and device_ns is null then. launch: all
 *                      kernels are launched singly, with arguments that were set before the first
 *                      step, as in every traced step. The results are the same.
 *     --fallback cpu   let the CPU execute operations that the device lacks; each is counted, and
 *                      its copies are COPY. Without it, such a plan is the fault "unsupported".
 *   A tuning file is text, one record per line, and is valid for one device only:
 *     farmhand-tuned 2
 *     device NAME<TAB>VERSION<TAB>DRIVER            as in info; on another device: "unsupported"
 *     kernels DIGEST                                of common.cl and sgemm_*.cl; not checked
 *     sgemm M N K TA TB VARIANT [NAME=VALUE ...]    the fastest for op(A) op(B) of this size
 *   VARIANT is naive, vector, tiled, tiled_vector, direct, dots or packed; the names are
 *   definitions that it is built with (MR, NR, TILE ...), and GX and GY, the shape of a
 *   work group. A product uses the record with the same transposes that is nearest in size, and a
 *   rule of thumb where there is none.
 *
 * tune DIR
 *   Times variants of the matrix product on the device. DIR/candidates has one per line: M N K TA
 *   TB VARIANT [NAME=VALUE ...]. The candidates of one shape take turns, --rounds times (default
 *   3); a turn is as many launches as fill 20 ms, at least --launches (default 5), with one wait at
 *   the end. To stdout:
 *     {"line":"device", ...}                                              as in run
 *     {"line":"candidate","number":I,"build_ns":B,"launches":N,"wall_ns":W,"queue_ns":Q,
 *      "compute_ns":C,"error":E,"files":"...","options":"...","digest":"..."}
 *                                                                         in the order of the file
 *         I counts from 0. W is the least time per product over all turns, by the runner's clock; Q
 *         and C are as in a window, for the fastest product that was launched alone: one per round
 *         and one before. E is like answer_error. The rest is as in the record "program".
 *     {"line":"candidate","number":I,"fault":"one sentence"}              one that cannot be built
 *         or launched, e.g. because the device lacks local memory. The others are still timed.
 *     {"line":"done","candidates":N,"t_ns":T}
 *
 * THE PLAN
 *   Python lowers a workload with all parameters bound to a plan:
 *     farmhand-plan 1 HEADER_BYTES\n
 *     {header}\n          HEADER_BYTES bytes of JSON, newline included
 *     body                what the engine executes; may be empty, and the header says so
 *   The header describes the work:
 *     {"case":"DIGEST","workload":"mlp-4","backend":"cpu","threads":4,"training":true,
 *      "samples_per_step":32,"parameter_bytes":N,"activation_bytes":N,"body_bytes":0,
 *      "memory":{"parameter":B,"gradient":B,"state":B,"activation":B,"input":B,"dataset":B},
 *      "ops":[{"name":"fc1.forward","kind":"matmul","flops":N,"read_bytes":N,"write_bytes":N}]}
 *   ops are the operations of ONE step in the order of execution; a virtual phone computes its
 *   times from them. "time_steps":N (1 where absent) is the number of parts of an operation of
 *   which each needs the one before it, as in an LSTM. memory is what the arenas and streams of
 *   the body take. The grammar of the body is the opening comment of kernels/engine/engine.h. The
 *   engine reads only the body, a virtual phone only the header.
 *
 * WHAT THE RUNNER NEVER DOES
 *   It uses no network. It writes nothing outside DIR, except that the watchdog writes the nodes in
 *   DIR/restore. It allocates no memory inside the timed loop. It never falls back silently: an
 *   operation that the backend lacks is the fault "unsupported". It reports no clock other than
 *   CLOCK_BOOTTIME; only the thread pool measures its spin limit of 40 us and its waits with
 *   CLOCK_MONOTONIC. It does not judge: verdicts are the agent's.
 */
#ifndef FARMHAND_RUNNER_H
#define FARMHAND_RUNNER_H

#include "../engine/status.h"

#define RUNNER_CONTRACT 1
#define RUNNER_VERSION "farmhand 0.1.0"
#define RUNNER_WINDOWS_MAX 4096
#define RUNNER_LINE_BYTES_MAX 65536

#endif
