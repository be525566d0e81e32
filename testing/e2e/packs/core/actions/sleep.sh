#!/bin/sh
set -e
seconds=1
while IFS= read -r line; do
    case "$line" in
    seconds=*)
        seconds="${line#seconds=\'}"
        seconds="${seconds%\'}"
        ;;
    esac
done
sleep "$seconds"
echo "slept for $seconds"
