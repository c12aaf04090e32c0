#!/system/bin/sh
# A stand-in for llama-bench: it accepts the same arguments, waits as long as the recorded run took,
# and prints the recorded output. It computes nothing; it shows on virtual phones how an external
# program is run. Usage: bench.sh RECORDED -t THREADS -n TOKENS -r REPETITIONS -o json
recorded=$1
echo "loading the model" >&2
sleep 0.5
sleep 10.5
cat "$recorded"
