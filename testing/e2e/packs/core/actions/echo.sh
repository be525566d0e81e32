#!/bin/sh
# Reads name='value' lines until the end of its input.
set -e
message=""
while IFS= read -r line; do
    case "$line" in
    message=*)
        message="${line#message=\'}"
        message="${message%\'}"
        ;;
    esac
done
printf '%s\n' "$message"
