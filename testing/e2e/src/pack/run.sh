#!/bin/sh
# Starts, says every 50 ms that it lives, ends.
eval "$(cat)"

# One line by one write, so that lines of many jobs never mix.
say() {
    read -r now _ </proc/uptime
    printf '{"job":"%s","epoch":%s,"pid":%s,"event":"%s","at":%s}\n' \
        "$OUTLAST_JOB_ID" "$OUTLAST_EPOCH" "$$" "$1" "$now" >>"$ledger"
}

case $on_term in
ignore) trap '' TERM ;;
note) trap 'say term; exit 143' TERM ;;
finish) trap 'say end; printf "epoch=%s\n" "$OUTLAST_EPOCH"; exit 0' TERM ;;
later) trap 'say term; exit 75' TERM ;;
esac
# Only the first attempt takes long, where a test asks for that.
if [ "$OUTLAST_EPOCH" -gt 1 ] && [ "$later_ticks" -ge 0 ]; then
    ticks=$later_ticks
fi
say start
sync "$ledger"
tick=0
while [ "$tick" -lt "$ticks" ]; do
    sleep 0.05
    say alive
    tick=$((tick + 1))
done
if [ "$OUTLAST_EPOCH" -lt "$fail_before_epoch" ]; then
    say failed
    exit 7
fi
say end
sync "$ledger"
printf 'epoch=%s\n' "$OUTLAST_EPOCH"
