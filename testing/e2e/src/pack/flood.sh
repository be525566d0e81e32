#!/bin/sh
# Writes output without a newline: so many bytes, or without end. It is binary, or one letter.
eval "$(cat)"
read -r now _ </proc/uptime
printf '{"job":"%s","epoch":%s,"pid":%s,"event":"start","at":%s}\n' \
    "$OUTLAST_JOB_ID" "$OUTLAST_EPOCH" "$$" "$now" >>"$ledger"
if [ "$bytes" = endless ]; then
    exec cat /dev/zero
fi
if [ -n "$letter" ]; then
    head -c "$bytes" /dev/zero | tr '\0' "$letter"
    exit
fi
head -c "$bytes" /dev/urandom
