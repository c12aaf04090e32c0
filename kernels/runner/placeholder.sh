#!/system/bin/sh
# farmhand-runner for @ABI@: the placeholder of an ABI that has no build yet.
# It keeps the contract of runner.h: whatever is asked, one fault line, exit status 9.
fault='{"line":"fault","code":"no_runner","text":"There is no Farmhand runner for @ABI@ yet."}'
echo "$fault"
[ "$1" = run ] && [ -d "$3" ] && echo "$fault" >"$3/out.jsonl"
exit 9
