#!/bin/sh
# One item of a workflow. It writes when it begins and how it ends to the ledger, which the server
# does not know of.
eval "$(cat)"

# One line by one write, so that lines of many jobs never mix.
say() {
    printf '{"workflow":"%s","step":"%s","item":%s,"job":"%s","epoch":%s,"event":"%s"}\n' \
        "$workflow" "$step" "$item" "$OUTLAST_JOB_ID" "$OUTLAST_EPOCH" "$1" >>"$ledger"
}

say begin
tick=0
while [ "$tick" -lt "$ticks" ] || { [ -n "$until" ] && [ ! -e "$until" ]; }; do
    sleep 0.05
    tick=$((tick + 1))
done
if [ "$OUTLAST_EPOCH" -lt "$fail_before_epoch" ] || { [ -n "$needs" ] && [ ! -e "$needs" ]; }; then
    say failed
    echo "there is no $needs" >&2
    exit 7
fi
say end
if [ "$bytes" -gt 0 ]; then
    value=$(head -c "$bytes" /dev/zero | tr '\0' x)
fi
printf '{"item":%s,"value":"%s"}\n' "$item" "$value"
