#!/system/bin/sh
# A stand-in for llama-bench: it takes the same words, waits as long as the recorded run took, and
# prints what was recorded. It computes nothing: it is here so that the way of a foreign program can
# be walked on virtual phones. bench.sh RECORDED -t THREADS -n TOKENS -r REPETITIONS -o json
recorded=$1
echo "loading the model" >&2
sleep 0.5
sleep 10.5
cat "$recorded"
