#!/bin/sh
# Leaves a grandchild behind that does everything to escape, then ends at once.
eval "$(cat)"

say() {
    read -r now _ </proc/uptime
    printf '{"job":"%s","epoch":%s,"pid":%s,"event":"%s","at":%s}\n' \
        "$OUTLAST_JOB_ID" "$OUTLAST_EPOCH" "$$" "$1" "$now" >>"$ledger"
}

say start
# Own session, twice forked, empty environment, deaf to SIGTERM, and it keeps stdout open.
(
    env -i PATH="$PATH" setsid sh -c 'trap "" TERM HUP INT; echo here; while :; do sleep 1; done' \
        escaped "$marker" &
)
tick=0
while [ "$tick" -lt "$ticks" ]; do
    sleep 0.05
    tick=$((tick + 1))
done
say end
sync "$ledger"
printf 'epoch=%s\n' "$OUTLAST_EPOCH"
